-- schema: Everything that a deployment remembers. Times are seconds since 1970 by the database's clock.
CREATE TABLE schema_version(version INTEGER NOT NULL, at REAL NOT NULL);
CREATE TABLE runs(
  number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE,
  toolset TEXT NOT NULL DEFAULT '', journal_v INTEGER NOT NULL,
  entered INTEGER NOT NULL DEFAULT 0, status TEXT NOT NULL CHECK(status IN ('queued', 'running', 'waiting', 'done', 'failed', 'cancelled', 'poisoned')),
  epoch INTEGER NOT NULL DEFAULT 0, owner TEXT, takeovers INTEGER NOT NULL DEFAULT 0,
  cancel_requested INTEGER NOT NULL DEFAULT 0, forked_from TEXT NOT NULL DEFAULT '',
  forked_at INTEGER NOT NULL DEFAULT 0, input TEXT NOT NULL, result TEXT, created REAL NOT NULL,
  updated REAL NOT NULL);
-- No index has a column that each entry of a run updates.
CREATE INDEX runs_status ON runs(status, number) WHERE status <> 'done';
CREATE INDEX runs_created ON runs(created);
CREATE INDEX runs_forked ON runs(forked_from) WHERE forked_from <> '';
-- Steps in the order in which they come: those of one run would lie on a page of its own otherwise, and each entry of each
-- run writes one.
CREATE TABLE steps(
  run_id TEXT NOT NULL, step_key TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, epoch INTEGER NOT NULL,
  body TEXT NOT NULL, elapsed_s REAL NOT NULL DEFAULT 0, at REAL NOT NULL, PRIMARY KEY(run_id, step_key));
CREATE TABLE effects(
  number INTEGER PRIMARY KEY, scope TEXT NOT NULL, key TEXT NOT NULL, fingerprint TEXT NOT NULL, run_id TEXT NOT NULL,
  tool TEXT NOT NULL DEFAULT '', place TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL CHECK(state IN ('claimed', 'waiting', 'done', 'failed', 'in_doubt')),
  replay TEXT NOT NULL CHECK(replay IN ('key', 'verify', 'none')),
  owner TEXT NOT NULL, fence INTEGER NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, lease_until REAL NOT NULL, begun REAL NOT NULL,
  value TEXT, resolved_by TEXT, updated REAL NOT NULL, UNIQUE(scope, key));
-- By the beginning of a fingerprint, which distinguishes the few acts of a run.
CREATE INDEX effects_act ON effects(run_id, substr(fingerprint, 1, 12));
CREATE INDEX effects_open ON effects(lease_until) WHERE state IN ('claimed', 'waiting', 'in_doubt');
CREATE INDEX effects_failed ON effects(number) WHERE state = 'failed';
-- What was lost when the store was set back to an older copy of it; see stores/ledger.py.
CREATE TABLE restored(one INTEGER PRIMARY KEY CHECK(one = 1), since REAL NOT NULL, at REAL NOT NULL);
-- Acts that count as repeats in other runs.
CREATE TABLE acts(
  scope TEXT NOT NULL, fingerprint TEXT NOT NULL, key TEXT NOT NULL, at REAL NOT NULL,
  PRIMARY KEY(scope, fingerprint)) WITHOUT ROWID;
-- `ticks` is until when by the monotonic clock of the owner's machine.
CREATE TABLE locks(
  resource TEXT PRIMARY KEY, holder TEXT NOT NULL, fence INTEGER NOT NULL, until REAL NOT NULL,
  owner TEXT NOT NULL DEFAULT '', ticks REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
-- `used_by` is the claim that has used an approval, or the write whose result a question waits for; `pin` and `parameters` are
-- what an edit is held to.
CREATE TABLE approvals(
  number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,
  run_id TEXT NOT NULL, call_id TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL,
  arguments TEXT NOT NULL, risk TEXT NOT NULL, reason TEXT NOT NULL, description TEXT NOT NULL,
  state TEXT NOT NULL CHECK(state IN ('open', 'approved', 'denied', 'expired', 'used', 'cancelled')),
  decided_by TEXT NOT NULL, because TEXT NOT NULL, edited TEXT, asked REAL NOT NULL,
  expires REAL NOT NULL, pin TEXT NOT NULL DEFAULT '', place TEXT NOT NULL DEFAULT '', parameters TEXT NOT NULL DEFAULT '{}',
  people INTEGER NOT NULL DEFAULT 1, agreed TEXT NOT NULL DEFAULT '[]', principal TEXT NOT NULL DEFAULT '""',
  own_approval INTEGER NOT NULL DEFAULT 0, used_by TEXT NOT NULL DEFAULT '', waiters TEXT NOT NULL DEFAULT '[]');
CREATE INDEX approvals_run ON approvals(run_id);
CREATE INDEX approvals_write ON approvals(used_by) WHERE reason = '"its result comes from outside"';
CREATE INDEX approvals_open ON approvals(asked) WHERE state = 'open';
-- Standing approvals.
CREATE TABLE grants(
  id TEXT PRIMARY KEY, run_id TEXT NOT NULL, tool TEXT NOT NULL, pin TEXT NOT NULL, reason TEXT NOT NULL,
  granted_by TEXT NOT NULL, granted_at REAL NOT NULL, revoked_by TEXT NOT NULL DEFAULT '""',
  revoked_at REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX grants_tool ON grants(tool);
CREATE TABLE audit(
  seq INTEGER PRIMARY KEY, at REAL NOT NULL, run_id TEXT, event TEXT NOT NULL,
  body TEXT NOT NULL, prev TEXT, hash TEXT NOT NULL);
CREATE INDEX audit_run ON audit(run_id);
-- What digests of results are made with, so that nobody can check a guess who has only the audit log.
CREATE TABLE digest_keys(name TEXT PRIMARY KEY, key TEXT NOT NULL, made REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE kept(
  run_id TEXT NOT NULL, handle TEXT NOT NULL, body BLOB NOT NULL, created REAL NOT NULL, expires REAL NOT NULL,
  PRIMARY KEY(run_id, handle));
CREATE INDEX kept_old ON kept(expires);
CREATE INDEX kept_created ON kept(created);
-- Rates of tools, and tools that could not reach what they need; see stores/limits.py.
CREATE TABLE rates(
  name TEXT PRIMARY KEY, due REAL NOT NULL, taken INTEGER NOT NULL, apart_s REAL NOT NULL, full_s REAL NOT NULL,
  at REAL NOT NULL) WITHOUT ROWID;
CREATE INDEX rates_due ON rates(due);
CREATE TABLE breakers(
  tool TEXT PRIMARY KEY, failures INTEGER NOT NULL, most INTEGER NOT NULL, until REAL, tried REAL) WITHOUT ROWID;
-- Runs that workers carry out, until they are over; the columns of the model say how they wait for one that is away.
CREATE TABLE submitted(
  run_id TEXT PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, tools TEXT NOT NULL,
  segment INTEGER NOT NULL, deaths INTEGER NOT NULL, woken INTEGER NOT NULL, wake_at REAL, note TEXT NOT NULL,
  swept REAL NOT NULL, model_turn INTEGER NOT NULL DEFAULT 0, model_tries INTEGER NOT NULL DEFAULT 0,
  model_waited_s REAL NOT NULL DEFAULT 0) WITHOUT ROWID;
CREATE INDEX submitted_swept ON submitted(swept);
CREATE INDEX submitted_wake ON submitted(wake_at) WHERE wake_at IS NOT NULL;
-- Segments of runs that wait for a worker, or that one has begun; `after_death` is whether its last worker has died in it.
CREATE TABLE segments(
  id INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, number INTEGER NOT NULL, queue TEXT NOT NULL, lane TEXT NOT NULL,
  turn INTEGER NOT NULL, due REAL NOT NULL DEFAULT 0, attempt INTEGER NOT NULL DEFAULT 0,
  begun INTEGER NOT NULL DEFAULT 0, after_death INTEGER NOT NULL DEFAULT 0);
CREATE INDEX segments_turn ON segments(turn, id) WHERE begun = 0;
CREATE INDEX segments_lane ON segments(queue, lane, turn) WHERE begun = 0;
CREATE INDEX segments_begun ON segments(turn) WHERE begun = 1;

-- made: The tables were made, in this version.
INSERT INTO schema_version(version, at) VALUES (?1, (julianday('now') - 2440587.5) * 86400.0)

-- clock: The time. `unixepoch('subsec')` would be NULL before SQLite 3.42.
SELECT (julianday('now') - 2440587.5) * 86400.0

-- begin: The time, and what was lost if the store was set back.
SELECT (julianday('now') - 2440587.5) * 86400.0, since, at FROM (SELECT 1) LEFT JOIN restored

-- rows: The rows of these scopes and keys.
SELECT e.scope, e.key, e.fingerprint, e.run_id, e.state, e.replay, e.fence, e.lease_until, e.begun,
  e.value, e.epoch, e.tool, e.place, e.owner
FROM (VALUES (?)) AS n CROSS JOIN effects AS e ON e.scope = n.column1 AND e.key = n.column2

-- acts: Of these scopes, runs and fingerprints the rows that did not fail.
SELECT e.scope, e.key, e.fingerprint, e.run_id, e.state, e.replay, e.fence, e.lease_until, e.begun,
  e.value, e.epoch, e.tool, e.place, e.owner
FROM (VALUES (?)) AS n CROSS JOIN effects AS e INDEXED BY effects_act
  ON e.run_id = n.column2 AND substr(e.fingerprint, 1, 12) = substr(n.column3, 1, 12) AND e.fingerprint = n.column3
WHERE e.scope = n.column1 AND e.state <> 'failed'

-- write: The rows of a group as they are now. A row gets a new owner when its fence grows.
INSERT INTO effects(scope, key, fingerprint, run_id, state, replay, fence, lease_until, begun, value, epoch, tool, place, owner, updated)
VALUES (?)
ON CONFLICT(scope, key) DO UPDATE SET
  fingerprint = excluded.fingerprint, run_id = excluded.run_id, state = excluded.state, replay = excluded.replay,
  fence = excluded.fence, lease_until = excluded.lease_until, begun = excluded.begun, value = excluded.value,
  epoch = excluded.epoch, tool = excluded.tool, place = excluded.place, owner = excluded.owner, updated = excluded.updated, resolved_by = NULL

-- settle: How writes have ended. No index but that of the open ones is touched.
UPDATE effects SET state = g.column3, value = g.column4, updated = g.column5
FROM (VALUES (?)) AS g WHERE effects.scope = g.column1 AND effects.key = g.column2

-- keep: A long result of a run.
INSERT INTO kept(run_id, handle, body, created, expires)
SELECT ?1, ?2, ?3, now, now + ?4 FROM (SELECT (julianday('now') - 2440587.5) * 86400.0 AS now)

-- forget: Two texts that have expired; run for each new one, so that they go in time and nobody waits for it.
DELETE FROM kept WHERE (run_id, handle) IN (
  SELECT run_id, handle FROM kept WHERE expires < (julianday('now') - 2440587.5) * 86400.0 LIMIT 2)

-- kept: A long result that has not expired.
SELECT body FROM kept WHERE run_id = ?1 AND handle = ?2
  AND expires >= (julianday('now') - 2440587.5) * 86400.0

-- enqueue: A segment, behind the others of its lane, and not before the turn that runs now: lanes take turns. The next one
-- of a run replaces that which is under way.
WITH new(run_id, number, queue, lane) AS (VALUES (?, ?, ?, ?)),
present(turn) AS (SELECT coalesce(
  (SELECT turn FROM segments WHERE begun = 1 ORDER BY turn DESC LIMIT 1),
  (SELECT turn FROM segments WHERE begun = 0 ORDER BY turn, id LIMIT 1), 0)),
own(turn) AS (SELECT max(present.turn, coalesce((
  SELECT s.turn + 1 FROM segments AS s INDEXED BY segments_lane
  WHERE s.begun = 0 AND s.queue = new.queue AND s.lane = new.lane ORDER BY s.turn DESC LIMIT 1), 0)) FROM new, present)
INSERT INTO segments(run_id, number, queue, lane, turn)
SELECT new.run_id, new.number, new.queue, new.lane, own.turn FROM new, own WHERE true
ON CONFLICT(run_id) DO UPDATE SET number = excluded.number, queue = excluded.queue, lane = excluded.lane,
  turn = excluded.turn, due = 0, attempt = 0, begun = 0, after_death = 0 WHERE excluded.number > segments.number
RETURNING 1
