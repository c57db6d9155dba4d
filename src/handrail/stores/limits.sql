-- take: Take starts of a rate: so many, or one where its bucket would be less than half full; no row where that start would
-- be due too late. `due` is when the bucket would be full.
WITH given(name, taken, apart_s, full_s) AS (
  VALUES (CAST(? AS text), CAST(? AS bigint), CAST(? AS double precision), CAST(? AS double precision)))
INSERT INTO rates(name, due, taken, apart_s, full_s, at)
SELECT given.name, clock.at + given.taken * given.apart_s, given.taken, given.apart_s, given.full_s, clock.at
FROM given, (SELECT :now AS at) AS clock WHERE true
ON CONFLICT(name) DO UPDATE SET
  due = CASE WHEN rates.due > excluded.at THEN rates.due ELSE excluded.at END + excluded.apart_s * CASE
    WHEN CASE WHEN rates.due > excluded.at THEN rates.due - excluded.at ELSE 0 END + excluded.taken * excluded.apart_s
      <= excluded.full_s / 2 THEN excluded.taken ELSE 1 END,
  taken = CASE
    WHEN CASE WHEN rates.due > excluded.at THEN rates.due - excluded.at ELSE 0 END + excluded.taken * excluded.apart_s
      <= excluded.full_s / 2 THEN excluded.taken ELSE 1 END,
  apart_s = excluded.apart_s, full_s = excluded.full_s, at = excluded.at
WHERE CASE WHEN rates.due > excluded.at THEN rates.due - excluded.at ELSE 0 END + excluded.apart_s - excluded.full_s <= ?
RETURNING taken, due - full_s - at

-- set_back: Where the database's clock was set back since the last start, go on from the present time: nobody waits for the
-- clock to come there again. Of two that take a start at one moment, the later one may have the earlier time.
UPDATE rates SET due = due - at + :now, at = :now WHERE name = ? AND at > :now + 10 RETURNING 1

-- next_start: In how many seconds a start would be due.
SELECT due + apart_s - full_s - :now FROM rates WHERE name = ?

-- forget_full: Buckets that are full again say nothing.
DELETE FROM rates WHERE name IN (SELECT name FROM rates WHERE due < :now ORDER BY due LIMIT 200:holding)

-- unreached: Count an attempt that could not reach what its tool needs; after so many in a row the tool is left alone.
WITH given(tool, most, rest_s) AS (
  VALUES (CAST(? AS text), CAST(? AS bigint), CAST(? AS double precision)))
INSERT INTO breakers(tool, failures, most, until, tried)
SELECT given.tool, 1, given.most, CASE WHEN given.most <= 1 THEN :now + given.rest_s END, NULL FROM given WHERE true
ON CONFLICT(tool) DO UPDATE SET failures = breakers.failures + 1, most = excluded.most, tried = NULL,
  until = CASE WHEN breakers.failures + 1 >= excluded.most THEN :now + ? ELSE breakers.until END
RETURNING tool, failures, until - :now

-- reached: A tool that reached what it needs has no breaker.
DELETE FROM breakers WHERE tool = ?

-- try: Let one call try, for so long, once the rest is over. A time that is further away than it can have been set was set
-- before the database's clock was set back: it is over too.
UPDATE breakers SET tried = :now + g.within_s, until = :now FROM (SELECT CAST(? AS double precision) AS within_s) AS g
WHERE tool = ? AND (until <= :now OR until > :now + g.within_s + 10)
  AND (tried IS NULL OR tried <= :now OR tried > :now + g.within_s + 10) RETURNING 1

-- rest: How long a tool is left alone, and whether somebody tries it.
SELECT until - :now, tried - :now FROM breakers WHERE tool = ? AND until IS NOT NULL

-- breakers: The tools that could not reach what they need.
SELECT tool, failures, until - :now FROM breakers ORDER BY tool LIMIT 1000
