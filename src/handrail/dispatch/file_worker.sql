-- release_unheld: What is begun and not performed by the worker that has the file was left by one that has died.
UPDATE segments SET begun = 0, after_death = 1, due = 0
WHERE begun = 1 AND run_id NOT IN (SELECT value FROM json_each(?))

-- claim: The next segment that is due, of the lane whose turn it is. A run of which a segment is performed is left.
UPDATE segments SET begun = 1, attempt = attempt + 1 WHERE id = (
  SELECT s.id FROM segments AS s INDEXED BY segments_turn
  WHERE s.begun = 0 AND s.due <= ? AND s.run_id NOT IN (SELECT value FROM json_each(?))
    AND (? = '[]' OR s.queue IN (SELECT value FROM json_each(?)))
  ORDER BY s.turn, s.id LIMIT 1)
RETURNING run_id, number, queue, attempt, after_death

-- finish: A segment is done. A later one of its run may have replaced it.
DELETE FROM segments WHERE run_id = ? AND number = ?

-- release: A segment waits again, in its turn, from some time on.
UPDATE segments SET begun = 0, after_death = 0, due = ? WHERE run_id = ? AND number = ?
