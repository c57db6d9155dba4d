-- held: Who else holds a resource, or did when its process died.
SELECT holder, fence, until, owner, ticks FROM locks WHERE resource = ? AND holder <> ?

-- lock: Take a resource that nobody holds, this write before it was gone on with, or who was seen to hold it no longer.
INSERT INTO locks(resource, holder, fence, until, owner, ticks) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT(resource) DO UPDATE SET holder = excluded.holder, fence = excluded.fence, until = excluded.until,
  owner = excluded.owner, ticks = excluded.ticks
WHERE locks.holder = excluded.holder OR locks.holder = ? AND locks.fence = ? AND locks.until = ?
RETURNING 1

-- state: How a write stands that holds something.
SELECT state FROM effects WHERE scope = ? AND key = ?

-- unlock: Let go of what a write held that has ended.
DELETE FROM locks WHERE holder = ? AND fence = ?

-- renew: Hold on to what a write holds that is still under way.
UPDATE locks SET until = ?, ticks = ? WHERE holder = ? AND fence = ?

-- recall: The last act of any run that is like this one, unless it is too long ago; nulls where its row is gone.
SELECT a.key, e.scope, e.key, e.fingerprint, e.run_id, e.state, e.replay, e.fence, e.lease_until, e.begun,
  e.value, e.epoch, e.tool, e.place, e.owner
FROM acts AS a LEFT JOIN effects AS e ON e.scope = a.scope AND e.key = a.key AND e.fingerprint = a.fingerprint
WHERE a.scope = ? AND a.fingerprint = ? AND a.at >= ?

-- remember: An act, in the place of one that is too long ago, or of the one that was seen to stand for nothing.
INSERT INTO acts(scope, fingerprint, key, at) VALUES (?, ?, ?, ?)
ON CONFLICT(scope, fingerprint) DO UPDATE SET key = excluded.key, at = excluded.at
WHERE acts.at < ? OR acts.key = excluded.key OR acts.key = ?
RETURNING 1

-- approval: How the approval stands that a claim names.
SELECT state, expires, used_by FROM approvals WHERE id = ?

-- use: Record the claim that uses an approval, if the approval still stands as it was read.
UPDATE approvals SET state = 'used', used_by = ? WHERE id = ? AND state = ? AND used_by = ? RETURNING 1

-- close: Close the question for the result of a write that has failed.
UPDATE approvals SET state = 'cancelled', because = ?
WHERE used_by = ? AND reason = '"its result comes from outside"' AND state = 'open'

-- make_room: The oldest long results beyond what one run, and beyond what all of them may have kept.
DELETE FROM kept WHERE (run_id, handle) IN (
  SELECT run_id, handle FROM (
    SELECT run_id, handle, sum(length(body)) OVER (PARTITION BY run_id ORDER BY created DESC, handle) AS of_run,
      sum(length(body)) OVER (ORDER BY created DESC, run_id, handle) AS of_store FROM kept) AS held
  WHERE of_run > ? OR of_store > ?)
