-- schema: Everything of procrastinate lies here, so that an application's own procrastinate is not touched.
CREATE SCHEMA IF NOT EXISTS handrail_jobs

-- applied_table: Which of procrastinate's migrations were applied: it keeps no such list itself.
CREATE TABLE IF NOT EXISTS handrail_jobs.handrail_migrations(
  name text COLLATE "C" PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())

-- applied: The migrations that were applied.
SELECT name FROM handrail_jobs.handrail_migrations

-- was_applied: A migration was applied.
INSERT INTO handrail_jobs.handrail_migrations(name) VALUES (%s) ON CONFLICT DO NOTHING

-- ours: What we need of a job beyond what procrastinate has: turns of scopes, and what outlives a worker.
ALTER TABLE handrail_jobs.procrastinate_jobs
  ADD COLUMN IF NOT EXISTS handrail_number bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS handrail_scope text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN IF NOT EXISTS handrail_turn bigint NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS handrail_cancelled boolean NOT NULL DEFAULT false,
  ADD COLUMN IF NOT EXISTS handrail_since double precision NOT NULL DEFAULT 0,
  ADD COLUMN IF NOT EXISTS handrail_after_death boolean NOT NULL DEFAULT false;
ALTER TABLE handrail_jobs.procrastinate_workers
  ADD COLUMN IF NOT EXISTS handrail_worker text COLLATE "C" UNIQUE,
  ADD COLUMN IF NOT EXISTS handrail_since double precision;
ALTER TABLE handrail_jobs.procrastinate_jobs SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE UNIQUE INDEX IF NOT EXISTS handrail_once ON handrail_jobs.procrastinate_jobs(queueing_lock)
  WHERE status IN ('todo', 'doing');
CREATE INDEX IF NOT EXISTS handrail_run ON handrail_jobs.procrastinate_jobs(lock, handrail_number);
CREATE INDEX IF NOT EXISTS handrail_turn ON handrail_jobs.procrastinate_jobs(queue_name, handrail_turn, id)
  WHERE status = 'todo' AND task_name = 'handrail.segment';
CREATE INDEX IF NOT EXISTS handrail_scope ON handrail_jobs.procrastinate_jobs(queue_name, handrail_scope, handrail_turn)
  WHERE status = 'todo' AND task_name = 'handrail.segment';
CREATE INDEX IF NOT EXISTS handrail_urgent
  ON handrail_jobs.procrastinate_jobs(queue_name, handrail_scope, priority DESC, id)
  WHERE status = 'todo' AND task_name = 'handrail.segment';
CREATE INDEX IF NOT EXISTS handrail_running ON handrail_jobs.procrastinate_jobs(queue_name, handrail_turn)
  WHERE status = 'doing' AND task_name = 'handrail.segment';
CREATE INDEX IF NOT EXISTS handrail_ended ON handrail_jobs.procrastinate_jobs(id)
  WHERE task_name = 'handrail.segment' AND status NOT IN ('todo', 'doing')

-- functions: The functions of procrastinate that do not yet look into this schema whoever calls them.
SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'handrail_jobs' AND p.proconfig IS NULL

-- enqueue: A segment, behind the others of its scope; see `lease.sql`. Never at a later time (`scheduled_at`): a job of
-- the future with the same lock would block the present one.
WITH new(run_id, number, queue, scope, priority, segment, now) AS (
  VALUES (CAST(? AS text), CAST(? AS bigint), CAST(? AS text), CAST(? AS text), CAST(? AS integer), CAST(? AS text),
    CAST(? AS double precision)))
INSERT INTO handrail_jobs.procrastinate_jobs(queue_name, task_name, priority, lock, queueing_lock, args,
  handrail_number, handrail_scope, handrail_since, handrail_turn)
SELECT new.queue, 'handrail.segment', new.priority, new.run_id, new.run_id || '/' || new.number,
  jsonb_build_object('segment', new.segment), new.number, new.scope, new.now, (SELECT max(turns.turn) FROM (
    SELECT coalesce(
      (SELECT max(s.handrail_turn) FROM handrail_jobs.procrastinate_jobs AS s
        WHERE s.queue_name = new.queue AND s.status = 'doing' AND s.task_name = 'handrail.segment'),
      (SELECT min(s.handrail_turn) FROM handrail_jobs.procrastinate_jobs AS s
        WHERE s.queue_name = new.queue AND s.status = 'todo' AND s.task_name = 'handrail.segment'), 0) AS turn
    UNION ALL
    SELECT max(s.handrail_turn) + 1 FROM handrail_jobs.procrastinate_jobs AS s
      WHERE s.queue_name = new.queue AND s.handrail_scope = new.scope AND s.status = 'todo'
      AND s.task_name = 'handrail.segment') AS turns)
FROM new ON CONFLICT DO NOTHING RETURNING 1

-- drop_waiting: The waiting segments of a run are not performed.
DELETE FROM handrail_jobs.procrastinate_jobs
WHERE lock = ? AND status = 'todo' AND task_name = 'handrail.segment' RETURNING 1

-- mark_cancelled: Those that are performed are told so by their worker; a trigger of procrastinate notifies it.
UPDATE handrail_jobs.procrastinate_jobs SET abort_requested = true
WHERE lock = ? AND status = 'doing' AND task_name = 'handrail.segment' RETURNING 1

-- beat: A worker is alive; see `lease.sql`.
WITH new(worker, beat, since, gap_s) AS (
  VALUES (CAST(? AS text), CAST(? AS double precision), CAST(? AS double precision), CAST(? AS double precision)))
INSERT INTO handrail_jobs.procrastinate_workers(handrail_worker, last_heartbeat, handrail_since)
SELECT new.worker, to_timestamp(new.beat), coalesce(
  (SELECT min(w.handrail_since) FROM handrail_jobs.procrastinate_workers AS w
    WHERE w.last_heartbeat >= to_timestamp(new.since - new.gap_s) AND w.handrail_since < new.since), new.since)
FROM new
ON CONFLICT(handrail_worker) DO UPDATE SET last_heartbeat = excluded.last_heartbeat,
  handrail_since = excluded.handrail_since RETURNING handrail_since

-- oldest_beat: Of the worker that has been silent for longest.
SELECT extract(epoch FROM min(last_heartbeat))::double precision FROM handrail_jobs.procrastinate_workers
WHERE handrail_worker IS NOT NULL

-- leave: A worker has ended.
DELETE FROM handrail_jobs.procrastinate_workers WHERE handrail_worker = ?

-- waiting_queues: The queues with a waiting segment, one look into the index for each.
WITH RECURSIVE q(queue) AS (
  SELECT min(s.queue_name) FROM handrail_jobs.procrastinate_jobs AS s
    WHERE s.status = 'todo' AND s.task_name = 'handrail.segment'
  UNION ALL
  SELECT (SELECT min(s.queue_name) FROM handrail_jobs.procrastinate_jobs AS s
    WHERE s.status = 'todo' AND s.task_name = 'handrail.segment' AND s.queue_name > q.queue) FROM q
    WHERE q.queue IS NOT NULL)
SELECT queue FROM q WHERE queue IS NOT NULL

-- claim: The next segments of a queue; see `claim_postgres` in `lease.sql`. procrastinate's own fetch takes the highest
-- priority of all scopes, and reads past every waiting job of a run that is under way.
WITH given(worker, queue, aside, most) AS (
  VALUES (CAST(? AS text), CAST(? AS text), CAST(? AS text), CAST(? AS bigint))),
me AS MATERIALIZED (
  SELECT w.id FROM handrail_jobs.procrastinate_workers AS w, given WHERE w.handrail_worker = given.worker),
aside AS MATERIALIZED (SELECT value::bigint AS id FROM given, json_array_elements_text(given.aside::json) AS value),
slots AS MATERIALIZED (
  SELECT s.id, s.handrail_scope AS scope, s.handrail_turn AS turn FROM handrail_jobs.procrastinate_jobs AS s
  WHERE s.queue_name = (SELECT queue FROM given) AND s.status = 'todo' AND s.task_name = 'handrail.segment'
    AND EXISTS (SELECT 1 FROM me) AND s.id NOT IN (SELECT id FROM aside)
    AND NOT EXISTS (SELECT 1 FROM handrail_jobs.procrastinate_jobs AS o WHERE o.lock = s.lock
      AND (o.handrail_number < s.handrail_number AND o.status IN ('todo', 'doing')
        OR o.handrail_number > s.handrail_number AND o.status = 'doing'))
  ORDER BY s.handrail_turn, s.id LIMIT (SELECT most FROM given) FOR UPDATE OF s SKIP LOCKED),
shares AS (SELECT scope, count(*) AS most FROM slots GROUP BY scope),
best AS MATERIALIZED (
  SELECT s.id, s.turn, shares.scope, s.priority FROM shares CROSS JOIN LATERAL (
    SELECT s.id, s.handrail_turn AS turn, s.priority FROM handrail_jobs.procrastinate_jobs AS s
    WHERE s.queue_name = (SELECT queue FROM given) AND s.handrail_scope = shares.scope AND s.status = 'todo'
      AND s.task_name = 'handrail.segment' AND s.id NOT IN (SELECT id FROM aside)
      AND NOT EXISTS (SELECT 1 FROM handrail_jobs.procrastinate_jobs AS o WHERE o.lock = s.lock
        AND (o.handrail_number < s.handrail_number AND o.status IN ('todo', 'doing')
          OR o.handrail_number > s.handrail_number AND o.status = 'doing'))
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
  SELECT taken.id, turns.turn, true AS claims
  FROM taken JOIN turns ON turns.scope = taken.scope AND turns.place = taken.place
  UNION ALL
  SELECT left_over.id, turns_left.turn, false
  FROM left_over JOIN turns_left ON turns_left.scope = left_over.scope AND turns_left.place = left_over.place)
UPDATE handrail_jobs.procrastinate_jobs AS s SET handrail_turn = changes.turn,
  status = CASE WHEN changes.claims THEN 'doing'::handrail_jobs.procrastinate_job_status ELSE s.status END,
  worker_id = CASE WHEN changes.claims THEN (SELECT id FROM me) END,
  attempts = s.attempts + CASE WHEN changes.claims THEN 1 ELSE 0 END,
  abort_requested = changes.claims AND s.handrail_cancelled
FROM changes WHERE s.id = changes.id
RETURNING s.id, s.attempts, s.args ->> 'segment', s.abort_requested, s.handrail_after_death, s.worker_id, s.handrail_turn

-- held: What a worker holds.
SELECT s.id, s.attempts, s.args ->> 'segment', s.abort_requested, s.handrail_after_death
FROM handrail_jobs.procrastinate_workers AS w JOIN handrail_jobs.procrastinate_jobs AS s ON s.worker_id = w.id
WHERE w.handrail_worker = ? AND s.status = 'doing'

-- finish: A segment is done, if its worker still holds it. procrastinate's own statement names no worker.
DELETE FROM handrail_jobs.procrastinate_jobs AS s WHERE s.id = ? AND s.status = 'doing' AND s.worker_id =
  (SELECT w.id FROM handrail_jobs.procrastinate_workers AS w WHERE w.handrail_worker = ?) AND s.attempts = ? RETURNING 1

-- release: A segment waits again, if its worker still holds it; it takes the turn that runs now.
UPDATE handrail_jobs.procrastinate_jobs AS s SET status = 'todo', worker_id = NULL, abort_requested = false,
  handrail_cancelled = s.abort_requested, handrail_after_death = false, handrail_since = ?, handrail_turn = (
    SELECT max(o.handrail_turn) FROM handrail_jobs.procrastinate_jobs AS o
    WHERE o.queue_name = s.queue_name AND o.status = 'doing' AND o.task_name = 'handrail.segment')
WHERE s.id = ? AND s.status = 'doing' AND s.worker_id =
  (SELECT w.id FROM handrail_jobs.procrastinate_workers AS w WHERE w.handrail_worker = ?) AND s.attempts = ? RETURNING 1

-- requeue_dead: Segments wait again whose worker is silent. By one process at a time; the others leave it to that one.
-- A row that a frozen process has locked is left for the next sweep: the others do not wait for it.
WITH ours AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(CAST(? AS bigint)) AS are),
dead AS MATERIALIZED (
  SELECT s.id, w.handrail_worker AS worker, w.last_heartbeat AS beat FROM handrail_jobs.procrastinate_jobs AS s
  LEFT JOIN handrail_jobs.procrastinate_workers AS w ON w.id = s.worker_id
  WHERE (SELECT are FROM ours) AND s.status = 'doing' AND s.task_name = 'handrail.segment'
    AND coalesce(w.last_heartbeat < to_timestamp(?), true) FOR UPDATE OF s SKIP LOCKED)
UPDATE handrail_jobs.procrastinate_jobs AS s SET status = 'todo', worker_id = NULL, abort_requested = false,
  handrail_cancelled = s.abort_requested, handrail_after_death = true, handrail_since = ?
FROM dead WHERE s.id = dead.id
RETURNING s.lock, dead.worker, extract(epoch FROM dead.beat)::double precision

-- forget_dead: Silent workers; one that comes back registers again. A worker to which a job refers is left for the
-- next sweep: deleting it changes the job, and a frozen process may have that locked.
DELETE FROM handrail_jobs.procrastinate_workers WHERE id IN (
  SELECT w.id FROM handrail_jobs.procrastinate_workers AS w
  WHERE w.handrail_worker IS NOT NULL AND w.last_heartbeat < to_timestamp(?) AND NOT EXISTS (
    SELECT 1 FROM handrail_jobs.procrastinate_jobs AS s WHERE s.worker_id = w.id AND s.status = 'doing')
  FOR UPDATE OF w SKIP LOCKED)

-- forget_ended: Segments that somebody ended by procrastinate's own tools: no finished row is kept.
DELETE FROM handrail_jobs.procrastinate_jobs WHERE id IN (
  SELECT s.id FROM handrail_jobs.procrastinate_jobs AS s
  WHERE s.task_name = 'handrail.segment' AND s.status NOT IN ('todo', 'doing') FOR UPDATE SKIP LOCKED)

-- stats: How the queues stand.
SELECT queue_name, count(*) FILTER (WHERE status = 'todo'), count(*) FILTER (WHERE status = 'doing'),
  min(handrail_since) FILTER (WHERE status = 'todo')
FROM handrail_jobs.procrastinate_jobs WHERE task_name = 'handrail.segment' AND status IN ('todo', 'doing')
GROUP BY queue_name ORDER BY queue_name

-- alive: How many workers are alive.
SELECT count(*) FROM handrail_jobs.procrastinate_workers
WHERE handrail_worker IS NOT NULL AND last_heartbeat >= to_timestamp(?)

-- wake: Workers that listen, once this is committed; as the trigger of a new job does.
SELECT pg_notify('procrastinate_any_queue_v1', '{"type": "job_inserted"}')
