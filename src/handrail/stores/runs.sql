-- begin: Begin a run; one that is there is ours from now on, and returned as it stood.
INSERT INTO runs(run_id, toolset, journal_v, forked_from, forked_at, input, created, updated, owner, status, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 1)
ON CONFLICT(run_id) DO UPDATE SET
  epoch = runs.epoch + 1,
  cancel_requested = CASE WHEN runs.status IN ('running', 'queued', 'waiting') THEN runs.cancel_requested ELSE 0 END
RETURNING run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers

-- begin_new: Begin a run; one that is there stays as it is.
INSERT INTO runs(run_id, toolset, journal_v, forked_from, forked_at, input, created, updated, owner, status, epoch)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', 1) ON CONFLICT(run_id) DO NOTHING
RETURNING run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers

-- begin_unchanged: Take over a run that nobody has taken over since, and that nobody has ended since but with an answer.
UPDATE runs SET epoch = epoch + 1,
  cancel_requested = CASE WHEN status IN ('running', 'queued', 'waiting') THEN cancel_requested ELSE 0 END
WHERE run_id = ? AND epoch = ? AND (status = ? OR status NOT IN ('cancelled', 'failed', 'poisoned'))
RETURNING run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers

-- begin_again: Take over a run that was loaded; nothing if it has been deleted since. One that was cancelled since is to end.
UPDATE runs SET epoch = epoch + 1, cancel_requested = CASE WHEN status IN ('running', 'queued', 'waiting')
  OR status = 'cancelled' AND (epoch <> ? OR ? <> 'cancelled') THEN cancel_requested ELSE 0 END
WHERE run_id = ?
RETURNING run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers

-- take: A run that was there is under way again: with a wish for its end that nobody has heeded, if there is one.
UPDATE runs SET status = 'running', updated = ?, owner = ?, takeovers = ? WHERE run_id = ? RETURNING 1

-- enter: How runs stand now, and room for their next steps; nothing for an owner who was replaced. A run whose end is
-- wanted does not wait.
UPDATE runs SET updated = CAST(g.column3 AS double precision),
  status = CASE WHEN g.column4 = 'waiting' AND cancel_requested = 1 THEN 'cancelled' ELSE coalesce(g.column4, status) END,
  result = coalesce(g.column5, result), entered = entered + CAST(g.column6 AS bigint)
FROM (VALUES (?)) AS g WHERE runs.run_id = g.column1 AND runs.epoch = CAST(g.column2 AS bigint)
RETURNING run_id, cancel_requested, entered

-- step: Steps; what is there already stays.
INSERT INTO steps(run_id, step_key, seq, kind, epoch, body, elapsed_s, at) VALUES (?)
ON CONFLICT(run_id, step_key) DO NOTHING

-- run: A run.
SELECT run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers FROM runs WHERE run_id = ?

-- runs: The newest runs.
SELECT run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers FROM runs ORDER BY number DESC LIMIT ?

-- runs_in: The newest runs of one status.
SELECT run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers FROM runs WHERE status = :state ORDER BY number DESC LIMIT ?

-- browse: The newest runs before a number, those that were changed since.
SELECT number, run_id, input, status, toolset, epoch, result, cancel_requested, forked_from, forked_at, created, updated,
  journal_v, owner, takeovers FROM runs WHERE number < ? AND updated >= ? ORDER BY number DESC LIMIT ?

-- steps_of: What has happened in several runs, in order.
SELECT s.run_id, s.step_key, s.kind, s.body, s.elapsed_s FROM (VALUES (?)) AS n
  JOIN steps AS s ON s.run_id = n.column1 ORDER BY s.run_id, s.seq

-- step_times: When the steps of a run were recorded.
SELECT step_key, kind, CASE kind WHEN 'steps' THEN body ELSE 'null' END, at FROM steps WHERE run_id = ?

-- steps: What has happened in a run.
SELECT step_key, kind, body, elapsed_s FROM steps WHERE run_id = ? ORDER BY seq

-- cancel: Ask for a run's end; one that nobody drives has ended with that. Its next epoch begins, so that whoever has read
-- it before, and is about to take it over, does not.
UPDATE runs SET cancel_requested = 1, updated = ?, status = CASE status WHEN 'running' THEN status ELSE 'cancelled' END,
  epoch = epoch + CASE status WHEN 'running' THEN 0 ELSE 1 END
WHERE run_id = ? AND status IN ('queued', 'running', 'waiting', 'poisoned') RETURNING 1

-- ask: A question to a person, unless it has been asked.
INSERT INTO approvals(id, run_id, call_id, tool, digest, arguments, risk, reason, description, asked, expires, pin,
  parameters, place, people, principal, own_approval, used_by, state, decided_by, because)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'open', '""', '""') ON CONFLICT(id) DO NOTHING

-- change: What people have said on a question, if it still stands as whoever decided has seen it.
UPDATE approvals SET state = ?, decided_by = ?, because = ?, edited = ?, people = ?, own_approval = ?, agreed = ?, expires = ?, waiters = ?
WHERE id = ? AND state = ? AND people = ? AND agreed = ? AND waiters = ? RETURNING 1

-- use: Consume an approval.
UPDATE approvals SET state = 'used' WHERE id = ? AND state = 'approved' AND expires >= ? RETURNING 1

-- close: Close the questions of a run that is cancelled; approvals that nobody has used too. What a started write waits for stays.
UPDATE approvals SET state = 'cancelled', because = ?
WHERE run_id = ? AND state IN ('open', 'approved') AND expires >= ? AND used_by = ''

-- awaited: Until when the result of a started write may be delivered.
SELECT expires FROM approvals WHERE used_by = ? AND reason = '"its result comes from outside"' AND state IN ('open', 'expired')

-- question: A question.
SELECT id, run_id, call_id, tool, digest, arguments, risk, reason, description, state, decided_by, because, edited,
  asked, expires, pin, parameters, place, people, agreed, principal, own_approval, used_by, waiters FROM approvals WHERE id = ?

-- questions: All questions, the oldest first.
SELECT id, run_id, call_id, tool, digest, arguments, risk, reason, description, state, decided_by, because, edited,
  asked, expires, pin, parameters, place, people, agreed, principal, own_approval, used_by, waiters FROM approvals ORDER BY number

-- questions_of: The questions of a run, the oldest first.
SELECT id, run_id, call_id, tool, digest, arguments, risk, reason, description, state, decided_by, because, edited,
  asked, expires, pin, parameters, place, people, agreed, principal, own_approval, used_by, waiters FROM approvals WHERE run_id = ? ORDER BY number

-- questions_about: The questions of a run about the same arguments, the oldest first.
SELECT id, run_id, call_id, tool, digest, arguments, risk, reason, description, state, decided_by, because, edited,
  asked, expires, pin, parameters, place, people, agreed, principal, own_approval, used_by, waiters FROM approvals WHERE run_id = ? AND digest = ? ORDER BY number

-- open_questions: The questions that are open now, the oldest first.
SELECT id, run_id, call_id, tool, digest, arguments, risk, reason, description, state, decided_by, because, edited,
  asked, expires, pin, parameters, place, people, agreed, principal, own_approval, used_by, waiters FROM approvals WHERE state = 'open' AND expires >= ? ORDER BY +number

-- grant: A standing word, given anew where it was revoked.
INSERT INTO grants(id, run_id, tool, pin, reason, granted_by, granted_at) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT(id) DO UPDATE SET granted_by = excluded.granted_by, granted_at = excluded.granted_at, revoked_at = 0
WHERE grants.revoked_at > 0

-- granted: One standing word.
SELECT id, run_id, tool, pin, reason, granted_by, granted_at FROM grants WHERE id = ?

-- grants: The standing words in force, on a tool or on any.
SELECT id, run_id, tool, pin, reason, granted_by, granted_at FROM grants
WHERE revoked_at = 0 AND (tool = ? OR ? = '') ORDER BY granted_at, id

-- revoke: Take a standing word back.
UPDATE grants SET revoked_by = ?, revoked_at = ? WHERE id = ? AND revoked_at = 0 RETURNING 1

-- writes: The newest writes.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects ORDER BY number DESC LIMIT ?

-- writes_in: The newest writes of a state.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects WHERE state = :state ORDER BY number DESC LIMIT ?

-- writes_of: The newest writes of a run, of a state or of any.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects WHERE run_id = ? AND (state = ? OR ? = '') ORDER BY number DESC LIMIT ?

-- open_writes: The newest writes that have no end. The sign keeps the planner from looking through all for their order.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects WHERE state IN ('claimed', 'waiting', 'in_doubt') ORDER BY +number DESC

-- open_writes_of: The newest writes of a run that have no end.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects WHERE run_id = ? AND state IN ('claimed', 'waiting', 'in_doubt') ORDER BY number DESC

-- one: A write.
SELECT scope, key, tool, place, run_id, state, replay, fence, lease_until, begun, updated, value, resolved_by, fingerprint, owner
FROM effects WHERE scope = ? AND key = ?

-- resolve: A person's word on how a write ended, where nobody knows it or will say it.
UPDATE effects SET state = ?, value = ?, resolved_by = ?, updated = ?
WHERE scope = ? AND key = ? AND (state = 'in_doubt' OR state = 'claimed' AND fence = ? AND lease_until <= ?)

-- await_result: A write that was claimed waits for its result from outside.
UPDATE effects SET state = 'waiting' WHERE scope = ? AND key = ? AND fence = ? AND state IN ('claimed', 'waiting') RETURNING 1

-- deliver: How a write ended that waited for its result from outside, if it still does.
UPDATE effects SET state = ?, value = ?, updated = ?
WHERE scope = ? AND key = ? AND fence = ? AND state IN ('waiting', 'in_doubt') RETURNING 1

-- overdue: A write whose result did not come in time.
UPDATE effects SET state = 'in_doubt' WHERE scope = ? AND key = ? AND fence = ? AND state = 'waiting'

-- release: The key of a write that was taken back is free again.
UPDATE effects SET state = 'failed', resolved_by = ?, updated = ?
WHERE scope = ? AND key = ? AND fence = ? AND state = 'done' RETURNING 1

-- last: The end of the audit log.
SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1

-- end: The last record of the audit log, whole.
SELECT seq, at, run_id, event, body, prev, hash FROM audit ORDER BY seq DESC LIMIT 1

-- append: More records, but for those whose number another process has.
INSERT INTO audit(seq, at, run_id, event, body, prev, hash) VALUES (?)
ON CONFLICT(seq) DO NOTHING RETURNING 1

-- log: Records after a number.
SELECT seq, at, run_id, event, body, prev, hash FROM audit WHERE seq > ? ORDER BY seq LIMIT ?

-- log_of: Records of a run after a number.
SELECT seq, at, run_id, event, body, prev, hash FROM audit WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?

-- digest_keys: What digests of results are made with; the oldest is the one in use, others came with a copied store.
SELECT key FROM digest_keys ORDER BY made, name

-- add_digest_key: A key of our own, unless there is one.
INSERT INTO digest_keys(name, key, made) SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM digest_keys)
