-- locked: Whether another write holds a resource, or did when its process died and its lease is not over.
SELECT 1 FROM locks WHERE resource = ? AND until >= ? AND holder <> ?

-- lock: Take a resource that nobody holds, or that this write held before it was gone on with.
INSERT INTO locks(resource, holder, fence, until) VALUES (?, ?, ?, ?)
ON CONFLICT(resource) DO UPDATE SET holder = excluded.holder, fence = excluded.fence, until = excluded.until
WHERE locks.until < ? OR locks.holder = excluded.holder
RETURNING 1

-- unlock: Let go of what a write held that has ended.
DELETE FROM locks WHERE holder = ? AND fence = ?
