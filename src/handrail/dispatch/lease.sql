-- enqueue: A segment, behind the others of its scope: scopes take turns. One that is new to the queue begins at the turn
-- that runs now, so nobody saves turns up.
WITH new(run_id, number, queue, scope, priority, segment, now) AS (
  VALUES (CAST(? AS text), CAST(? AS bigint), CAST(? AS text), CAST(? AS text), CAST(? AS bigint), CAST(? AS text),
    CAST(? AS double precision)))
INSERT INTO segments(run_id, number, queue, scope, priority, segment, since, turn)
SELECT new.run_id, new.number, new.queue, new.scope, new.priority, new.segment, new.now, (SELECT max(turns.turn) FROM (
  SELECT coalesce((SELECT max(s.turn) FROM segments AS s WHERE s.queue = new.queue AND s.worker IS NOT NULL),
    (SELECT min(s.turn) FROM segments AS s WHERE s.queue = new.queue AND s.worker IS NULL), 0) AS turn
  UNION ALL
  SELECT max(s.turn) + 1 FROM segments AS s WHERE s.queue = new.queue AND s.scope = new.scope AND s.worker IS NULL
) AS turns)
FROM new WHERE true ON CONFLICT(run_id, number) DO NOTHING RETURNING 1

-- drop_waiting: The waiting segments of a run are not performed.
DELETE FROM segments WHERE run_id = ? AND worker IS NULL RETURNING 1

-- mark_cancelled: Those that are performed are told so by their worker.
UPDATE segments SET cancelled = 1 WHERE run_id = ? AND worker IS NOT NULL RETURNING 1

-- beat: A worker is alive. `since` is from when on the database has been in reach without a long gap: for this worker, or
-- before it for another one, also one that is dead by now.
WITH new(worker, beat, since, gap_s) AS (
  VALUES (CAST(? AS text), CAST(? AS double precision), CAST(? AS double precision), CAST(? AS double precision)))
INSERT INTO workers(worker, beat, since)
SELECT new.worker, new.beat, coalesce(
  (SELECT min(w.since) FROM workers AS w WHERE w.beat >= new.since - new.gap_s AND w.since < new.since), new.since)
FROM new WHERE true
ON CONFLICT(worker) DO UPDATE SET beat = excluded.beat, since = excluded.since RETURNING since

-- oldest_beat: Of the worker that has been silent for longest.
SELECT min(beat) FROM workers

-- leave: A worker has ended.
DELETE FROM workers WHERE worker = ?

-- waiting_queues: The queues with a waiting segment, one look into the index for each.
WITH RECURSIVE q(queue) AS (
  SELECT min(s.queue) FROM segments AS s WHERE s.worker IS NULL
  UNION ALL
  SELECT (SELECT min(s.queue) FROM segments AS s WHERE s.worker IS NULL AND s.queue > q.queue) FROM q WHERE q.queue IS NOT NULL)
SELECT queue FROM q WHERE queue IS NOT NULL

-- claim_sqlite: The next segment of a queue: of the scope whose turn it is the most urgent one, oldest first. Where that
-- is another row than the one that had the turn, the two change turns. One segment of a run at a time, in their order.
WITH given(worker, queue, aside) AS (VALUES (?, ?, ?)),
slot AS (
  SELECT s.id, s.scope, s.turn FROM segments AS s INDEXED BY segments_turn
  WHERE s.queue = (SELECT queue FROM given) AND s.worker IS NULL
    AND s.id NOT IN (SELECT value FROM json_each((SELECT aside FROM given)))
    AND NOT EXISTS (SELECT 1 FROM segments AS o WHERE o.run_id = s.run_id
      AND (o.number < s.number OR o.number > s.number AND o.worker IS NOT NULL))
  ORDER BY s.turn, s.id LIMIT 1),
best AS (
  SELECT s.id, s.turn FROM segments AS s INDEXED BY segments_urgent
  WHERE s.queue = (SELECT queue FROM given) AND s.scope = (SELECT scope FROM slot) AND s.worker IS NULL
    AND s.id NOT IN (SELECT value FROM json_each((SELECT aside FROM given)))
    AND NOT EXISTS (SELECT 1 FROM segments AS o WHERE o.run_id = s.run_id
      AND (o.number < s.number OR o.number > s.number AND o.worker IS NOT NULL))
  ORDER BY s.priority DESC, s.id LIMIT 1)
UPDATE segments SET
  worker = CASE WHEN segments.id = best.id THEN given.worker END,
  attempt = segments.attempt + (segments.id = best.id),
  turn = CASE WHEN segments.id = best.id THEN slot.turn ELSE best.turn END
FROM slot, best, given WHERE segments.id IN (slot.id, best.id)
RETURNING id, attempt, segment, cancelled, after_death, worker, turn

-- claim_postgres: The next segments of a queue, as `claim_sqlite` does for one: as many of each scope as have the turn.
-- Rows that another worker claims at this moment are passed over.
WITH given(worker, queue, aside, most) AS (
  VALUES (CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS bigint))),
aside AS MATERIALIZED (SELECT value::bigint AS id FROM given, json_array_elements_text(given.aside::json) AS value),
slots AS MATERIALIZED (
  SELECT s.id, s.scope, s.turn FROM segments AS s
  WHERE s.queue = (SELECT queue FROM given) AND s.worker IS NULL AND s.id NOT IN (SELECT id FROM aside)
    AND NOT EXISTS (SELECT 1 FROM segments AS o WHERE o.run_id = s.run_id
      AND (o.number < s.number OR o.number > s.number AND o.worker IS NOT NULL))
  ORDER BY s.turn, s.id LIMIT (SELECT most FROM given) FOR UPDATE OF s SKIP LOCKED),
shares AS (SELECT scope, count(*) AS most FROM slots GROUP BY scope),
best AS MATERIALIZED (
  SELECT s.id, s.turn, shares.scope, s.priority FROM shares CROSS JOIN LATERAL (
    SELECT s.id, s.turn, s.priority FROM segments AS s
    WHERE s.queue = (SELECT queue FROM given) AND s.scope = shares.scope AND s.worker IS NULL
      AND s.id NOT IN (SELECT id FROM aside)
      AND NOT EXISTS (SELECT 1 FROM segments AS o WHERE o.run_id = s.run_id
        AND (o.number < s.number OR o.number > s.number AND o.worker IS NOT NULL))
    ORDER BY s.priority DESC, s.id LIMIT shares.most FOR UPDATE OF s SKIP LOCKED) AS s),
turns AS (SELECT scope, turn, row_number() OVER (PARTITION BY scope ORDER BY turn, id) AS place FROM slots),
taken AS (SELECT id, scope, row_number() OVER (PARTITION BY scope ORDER BY priority DESC, id) AS place FROM best),
turns_left AS (
  SELECT scope, turn, row_number() OVER (PARTITION BY scope ORDER BY turn) AS place FROM best
  WHERE id NOT IN (SELECT id FROM slots)),
left_over AS (
  SELECT id, scope, row_number() OVER (PARTITION BY scope ORDER BY turn, id) AS place FROM slots
  WHERE id NOT IN (SELECT id FROM best)),
changes AS (
  SELECT taken.id, turns.turn, (SELECT worker FROM given) AS worker, 1 AS claims
  FROM taken JOIN turns ON turns.scope = taken.scope AND turns.place = taken.place
  UNION ALL
  SELECT left_over.id, turns_left.turn, NULL, 0
  FROM left_over JOIN turns_left ON turns_left.scope = left_over.scope AND turns_left.place = left_over.place)
UPDATE segments AS s SET worker = changes.worker, attempt = s.attempt + changes.claims, turn = changes.turn
FROM changes WHERE s.id = changes.id
RETURNING s.id, s.attempt, s.segment, s.cancelled, s.after_death, s.worker, s.turn

-- held: What a worker holds.
SELECT id, attempt, segment, cancelled, after_death FROM segments WHERE worker = ?

-- finish: A segment is done, if its worker still holds it.
DELETE FROM segments WHERE id = ? AND worker = ? AND attempt = ? RETURNING 1

-- release: A segment waits again, if its worker still holds it. It takes the turn that runs now, so that one which
-- nobody can perform does not hold the turns of the queue back.
UPDATE segments SET worker = NULL, after_death = 0, since = ?, turn = (
  SELECT max(s.turn) FROM segments AS s WHERE s.queue = segments.queue AND s.worker IS NOT NULL)
WHERE id = ? AND worker = ? AND attempt = ? RETURNING 1

-- dead: What workers hold that are silent.
SELECT s.run_id, s.worker, w.beat FROM segments AS s LEFT JOIN workers AS w ON w.worker = s.worker
WHERE s.worker IS NOT NULL AND coalesce(w.beat < ?, true)

-- requeue_dead: These segments wait again.
UPDATE segments SET worker = NULL, after_death = 1, since = ? WHERE worker IS NOT NULL AND NOT EXISTS (
  SELECT 1 FROM workers AS w WHERE w.worker = segments.worker AND w.beat >= ?) RETURNING 1

-- requeue_dead_postgres: Both at once, by one process at a time; the others leave it to that one. A row that a frozen
-- process has locked is left for the next sweep: the others do not wait for it.
WITH ours AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(CAST(? AS bigint)) AS are),
dead AS MATERIALIZED (
  SELECT s.id, s.worker, w.beat FROM segments AS s LEFT JOIN workers AS w ON w.worker = s.worker
  WHERE (SELECT are FROM ours) AND s.worker IS NOT NULL AND coalesce(w.beat < ?, true) FOR UPDATE OF s SKIP LOCKED)
UPDATE segments AS s SET worker = NULL, after_death = 1, since = ? FROM dead WHERE s.id = dead.id
RETURNING s.run_id, dead.worker, dead.beat

-- forget_dead: Silent workers; one that comes back registers again.
DELETE FROM workers WHERE beat < ?

-- forget_dead_postgres: The same, except those whose row is locked.
DELETE FROM workers WHERE worker IN (SELECT worker FROM workers WHERE beat < ? FOR UPDATE SKIP LOCKED)

-- stats: How the queues stand.
SELECT queue, count(*) - count(worker), count(worker), min(CASE WHEN worker IS NULL THEN since END)
FROM segments GROUP BY queue ORDER BY queue

-- alive: How many workers are alive.
SELECT count(*) FROM workers WHERE beat >= ?

-- notify: Wake the workers that listen, once this is committed.
SELECT pg_notify('handrail_segments', ?)

-- chosen: Which dispatcher has the segments of this store.
SELECT name FROM dispatchers WHERE one = 1

-- choose: The first who asks chooses.
INSERT INTO dispatchers(one, name) VALUES (1, ?) ON CONFLICT(one) DO NOTHING

-- choose_another: From one that has no segment to another.
UPDATE dispatchers SET name = ? WHERE one = 1 AND name = ?
