-- submit: A new run that waits for a worker. Its epoch is that of a run that was begun: whoever takes it takes it over.
INSERT INTO runs(run_id, toolset, journal_v, input, created, updated, owner, status, epoch)
VALUES (?, ?, ?, ?, ?, ?, '', 'queued', 1) ON CONFLICT(run_id) DO NOTHING RETURNING run_id

-- place: How a submitted run is carried out.
INSERT INTO submitted(run_id, queue, priority, tools, segment, deaths, woken, wake_at, note, swept)
VALUES (?, ?, ?, ?, 1, 0, 0, NULL, '""', ?)

-- placed: How runs are carried out.
SELECT s.run_id, s.queue, s.priority, s.tools, s.segment, s.deaths, s.note,
  s.wake_at, s.model_turn, s.model_tries, s.model_waited_s FROM (VALUES (?)) AS n
JOIN submitted AS s ON s.run_id = n.column1

-- lock: Hold a submitted run until the commit, if it is one; whether somebody has answered since it was last looked at.
UPDATE submitted SET swept = ? WHERE run_id = ? RETURNING segment, woken

-- answered: Note that somebody has answered a question of a submitted run.
UPDATE submitted SET woken = 1 WHERE run_id = ? RETURNING run_id

-- queue_waiting: A run that waited goes on.
UPDATE runs SET status = 'queued', updated = ? WHERE run_id = ? AND status = 'waiting' RETURNING run_id

-- next: Number the next segment.
UPDATE submitted SET segment = segment + 1, deaths = 0, woken = 0, wake_at = NULL, swept = ? WHERE run_id = ?
RETURNING run_id, segment, queue, priority

-- postpone: Let a later sweep enqueue the same segment again, and note for people what the run waits for.
UPDATE submitted SET wake_at = ?, swept = ?, note = ? WHERE run_id = ? RETURNING run_id

-- await_model: Let a later sweep enqueue the next segment, which asks the model of a turn again; and count how often it was
-- asked for that turn. The worker lives, so no earlier death in the run counts.
UPDATE submitted SET wake_at = ?, swept = ?, note = ?, segment = segment + 1, deaths = 0, woken = 0,
  model_tries = CASE WHEN model_turn = ? THEN model_tries ELSE 0 END + 1,
  model_waited_s = CASE WHEN model_turn = ? THEN model_waited_s ELSE 0 END + ?, model_turn = ?
WHERE run_id = ? RETURNING run_id

-- hold: Hold a submitted run until the commit, and leave it as it is.
UPDATE submitted SET woken = woken WHERE run_id = ? RETURNING run_id

-- stop_waiting: Somebody lets a run that waits for its model go on now. If that is away still, the waits begin with short ones.
UPDATE submitted SET wake_at = NULL, note = '""', swept = ?, model_tries = CASE WHEN model_tries > 1 THEN 1 ELSE model_tries END
WHERE run_id = ? AND wake_at IS NOT NULL RETURNING run_id, segment, queue, priority

-- soon: The next sweep looks at the run.
UPDATE submitted SET swept = 0 WHERE run_id = ? RETURNING run_id

-- died: Count a worker that died in a segment; one that left a note has handed it back and lives.
UPDATE submitted SET deaths = deaths + CASE WHEN note = '""' THEN 1 ELSE 0 END WHERE run_id = ? RETURNING deaths

-- begin: Whoever has a segment now has left no note.
UPDATE submitted SET note = '""' WHERE run_id = ? AND note <> '""' RETURNING run_id

-- note: Why a segment was handed back.
UPDATE submitted SET note = ? WHERE run_id = ? RETURNING run_id

-- waits: When the first open question expires of a run, or of one that its calls have started.
SELECT min(expires) FROM approvals WHERE (run_id = ? OR run_id >= ? AND run_id < ?) AND state = 'open'

-- expire: Mark the questions that `waits` looks at as expired if their time is over, so that they wake their run only once.
UPDATE approvals SET state = 'expired'
WHERE (run_id = ? OR run_id >= ? AND run_id < ?) AND state = 'open' AND expires < ? RETURNING 1

-- wake_at: When a run that waits goes on without an answer.
UPDATE submitted SET wake_at = ?, note = '""' WHERE run_id = ? RETURNING run_id

-- forget: The run is over.
DELETE FROM submitted WHERE run_id = ? RETURNING run_id

-- expired: Runs with a question that has expired, or whose wait for a lease or a model is over, the longest first.
SELECT s.run_id, s.segment, s.queue, s.priority, r.status, s.woken
FROM submitted AS s LEFT JOIN runs AS r ON r.run_id = s.run_id WHERE s.wake_at < ? ORDER BY s.wake_at LIMIT ?

-- stale: Runs that were not looked at for long, the longest first.
SELECT s.run_id, s.segment, s.queue, s.priority, r.status, s.woken
FROM submitted AS s LEFT JOIN runs AS r ON r.run_id = s.run_id WHERE s.swept < ? ORDER BY s.swept LIMIT ?

-- cancelled: Which runs somebody has asked to end.
SELECT r.run_id FROM (VALUES (?)) AS n JOIN runs AS r ON r.run_id = n.column1 WHERE r.cancel_requested = 1
