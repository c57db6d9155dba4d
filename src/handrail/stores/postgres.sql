-- settings: Our tables by their plain names, bounded waits, commits on the disk, rows looked up by their keys only, and each
-- statement sees what was committed before it: also behind the locks that a function waits for. The server ends the
-- transaction of a frozen process before whoever waits for its locks has waited once.
SELECT set_config('search_path', 'handrail', false), set_config('lock_timeout', '3500ms', false),
  set_config('application_name', coalesce(nullif(current_setting('application_name'), ''), 'handrail'), false),
  set_config('client_encoding', 'UTF8', false), set_config('default_transaction_isolation', 'read committed', false),
  set_config('idle_in_transaction_session_timeout', '3s', false),
  set_config('synchronous_commit', CASE current_setting('synchronous_commit')
    WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
  set_config('enable_seqscan', 'off', false), set_config('enable_hashjoin', 'off', false),
  set_config('enable_mergejoin', 'off', false)

-- end_frozen: Of a process of ours that has sent nothing for so many seconds in the middle of a transaction, this is ended. It
-- holds what others wait for, and a table of ours: who only reads is left, and so are other programs with our role and name.
WITH frozen AS MATERIALIZED (
  SELECT a.pid FROM pg_stat_activity AS a WHERE a.datname = current_database() AND a.usename = current_user
    AND a.application_name = current_setting('application_name') AND a.state <> 'idle' AND a.wait_event = 'ClientRead'
    AND a.state_change < clock_timestamp() - make_interval(secs => %s)
    AND EXISTS (SELECT 1 FROM pg_locks AS l WHERE l.pid = a.pid AND l.locktype IN ('advisory', 'transactionid'))
    AND EXISTS (SELECT 1 FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation
      WHERE l.pid = a.pid AND c.relnamespace = 'handrail'::regnamespace))
SELECT count(*) FROM frozen WHERE pg_terminate_backend(pid)

-- patiently: Wait longer for locks, in this transaction or from now on: while another process makes the tables, or before they
-- are rewritten.
SELECT set_config('lock_timeout', '10s', %s)

-- version: The version of the tables, null where there are none.
SELECT to_regclass('handrail.schema_version')

-- schema: Everything that a deployment remembers. Times are seconds since 1970 by the database's clock.
CREATE TABLE schema_version(version bigint NOT NULL, at double precision NOT NULL);
CREATE TABLE runs(
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL UNIQUE,
  toolset text COLLATE "C" NOT NULL DEFAULT '', journal_v bigint NOT NULL,
  entered bigint NOT NULL DEFAULT 0, status text COLLATE "C" NOT NULL CHECK(status IN ('queued', 'running', 'waiting', 'done', 'failed', 'cancelled', 'poisoned')),
  epoch bigint NOT NULL DEFAULT 0, owner text COLLATE "C", takeovers bigint NOT NULL DEFAULT 0,
  cancel_requested bigint NOT NULL DEFAULT 0, forked_from text COLLATE "C" NOT NULL DEFAULT '',
  forked_at bigint NOT NULL DEFAULT 0, input text COLLATE "C" NOT NULL, result text COLLATE "C", created double precision NOT NULL,
  updated double precision NOT NULL) WITH (fillfactor = 80);
-- No index has a column that each entry of a run updates.
CREATE INDEX runs_status ON runs(status, number) WHERE status <> 'done';
CREATE INDEX runs_created ON runs(created);
CREATE INDEX runs_forked ON runs(forked_from) WHERE forked_from <> '';
CREATE TABLE steps(
  run_id text COLLATE "C" NOT NULL, step_key text COLLATE "C" NOT NULL, seq bigint NOT NULL, kind text COLLATE "C" NOT NULL, epoch bigint NOT NULL,
  body text COLLATE "C" NOT NULL, elapsed_s double precision NOT NULL DEFAULT 0, at double precision NOT NULL, PRIMARY KEY(run_id, step_key));
CREATE TABLE effects(
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, scope text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, fingerprint text COLLATE "C" NOT NULL, run_id text COLLATE "C" NOT NULL,
  tool text COLLATE "C" NOT NULL DEFAULT '', place text COLLATE "C" NOT NULL DEFAULT '',
  state text COLLATE "C" NOT NULL CHECK(state IN ('claimed', 'waiting', 'done', 'failed', 'in_doubt')),
  replay text COLLATE "C" NOT NULL CHECK(replay IN ('key', 'verify', 'none')),
  owner text COLLATE "C" NOT NULL, fence bigint NOT NULL, epoch bigint NOT NULL DEFAULT 0, lease_until double precision NOT NULL, begun double precision NOT NULL,
  value text COLLATE "C", resolved_by text COLLATE "C", updated double precision NOT NULL, UNIQUE(scope, key)) WITH (fillfactor = 80);
CREATE INDEX effects_act ON effects(run_id, fingerprint);
CREATE INDEX effects_open ON effects(lease_until) WHERE state IN ('claimed', 'waiting', 'in_doubt');
CREATE INDEX effects_failed ON effects(number) WHERE state = 'failed';
-- What was lost when the store was set back to an older copy of it; see stores/ledger.py.
CREATE TABLE restored(
  one bigint PRIMARY KEY CHECK(one = 1), since double precision NOT NULL, at double precision NOT NULL);
-- Acts that count as repeats in other runs.
CREATE TABLE acts(
  scope text COLLATE "C" NOT NULL, fingerprint text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL, at double precision NOT NULL,
  PRIMARY KEY(scope, fingerprint));
-- `ticks` is until when by the monotonic clock of the owner's machine.
CREATE TABLE locks(
  resource text COLLATE "C" PRIMARY KEY, holder text COLLATE "C" NOT NULL, fence bigint NOT NULL, until double precision NOT NULL,
  owner text COLLATE "C" NOT NULL DEFAULT '', ticks double precision NOT NULL DEFAULT 0);
-- `used_by` is the claim that has used an approval, or the write whose result a question waits for; `pin` and `parameters` are
-- what an edit is held to.
CREATE TABLE approvals(
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id text COLLATE "C" NOT NULL UNIQUE,
  run_id text COLLATE "C" NOT NULL, call_id text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL, digest text COLLATE "C" NOT NULL,
  arguments text COLLATE "C" NOT NULL, risk text COLLATE "C" NOT NULL, reason text COLLATE "C" NOT NULL, description text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL CHECK(state IN ('open', 'approved', 'denied', 'expired', 'used', 'cancelled')),
  decided_by text COLLATE "C" NOT NULL, because text COLLATE "C" NOT NULL, edited text COLLATE "C", asked double precision NOT NULL,
  expires double precision NOT NULL, pin text COLLATE "C" NOT NULL DEFAULT '', place text COLLATE "C" NOT NULL DEFAULT '',
  parameters text COLLATE "C" NOT NULL DEFAULT '{}', people bigint NOT NULL DEFAULT 1, agreed text COLLATE "C" NOT NULL DEFAULT '[]',
  principal text COLLATE "C" NOT NULL DEFAULT '""', own_approval bigint NOT NULL DEFAULT 0, used_by text COLLATE "C" NOT NULL DEFAULT '', waiters text COLLATE "C" NOT NULL DEFAULT '[]');
CREATE INDEX approvals_run ON approvals(run_id);
CREATE INDEX approvals_write ON approvals(used_by) WHERE reason = '"its result comes from outside"';
CREATE INDEX approvals_open ON approvals(asked) WHERE state = 'open';
-- Standing approvals.
CREATE TABLE grants(
  id text COLLATE "C" PRIMARY KEY, run_id text COLLATE "C" NOT NULL, tool text COLLATE "C" NOT NULL, pin text COLLATE "C" NOT NULL, reason text COLLATE "C" NOT NULL,
  granted_by text COLLATE "C" NOT NULL, granted_at double precision NOT NULL, revoked_by text COLLATE "C" NOT NULL DEFAULT '""',
  revoked_at double precision NOT NULL DEFAULT 0);
CREATE INDEX grants_tool ON grants(tool);
CREATE TABLE audit(
  seq bigint PRIMARY KEY, at double precision NOT NULL, run_id text COLLATE "C", event text COLLATE "C" NOT NULL,
  body text COLLATE "C" NOT NULL, prev text COLLATE "C", hash text COLLATE "C" NOT NULL);
CREATE INDEX audit_run ON audit(run_id, seq);
-- What digests of results are made with, so that nobody can check a guess who has only the audit log.
CREATE TABLE digest_keys(name text COLLATE "C" PRIMARY KEY, key text NOT NULL, made double precision NOT NULL);
CREATE TABLE kept(
  run_id text COLLATE "C" NOT NULL, handle text COLLATE "C" NOT NULL, body bytea NOT NULL, created double precision NOT NULL, expires double precision NOT NULL,
  PRIMARY KEY(run_id, handle));
CREATE INDEX kept_old ON kept(expires);
CREATE INDEX kept_created ON kept(created);
-- Rates of tools, and tools that could not reach what they need; see stores/limits.py.
CREATE TABLE rates(
  name text COLLATE "C" PRIMARY KEY, due double precision NOT NULL, taken bigint NOT NULL, apart_s double precision NOT NULL,
  full_s double precision NOT NULL, at double precision NOT NULL) WITH (fillfactor = 50);
CREATE INDEX rates_due ON rates(due);
CREATE TABLE breakers(
  tool text COLLATE "C" PRIMARY KEY, failures bigint NOT NULL, most bigint NOT NULL, until double precision, tried double precision);
-- Runs that workers carry out, until they are over; the columns of the model say how they wait for one that is away.
CREATE TABLE submitted(
  run_id text COLLATE "C" PRIMARY KEY, queue text COLLATE "C" NOT NULL, priority bigint NOT NULL,
  tools text COLLATE "C" NOT NULL, segment bigint NOT NULL, deaths bigint NOT NULL, woken bigint NOT NULL,
  wake_at double precision, note text COLLATE "C" NOT NULL, swept double precision NOT NULL, model_turn bigint NOT NULL DEFAULT 0,
  model_tries bigint NOT NULL DEFAULT 0, model_waited_s double precision NOT NULL DEFAULT 0) WITH (fillfactor = 80);
CREATE INDEX submitted_swept ON submitted(swept);
CREATE INDEX submitted_wake ON submitted(wake_at) WHERE wake_at IS NOT NULL;
-- Records that were committed while another process had the end of the audit log; see stores/shared_log.py.
CREATE TABLE audit_pending(
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, writer text COLLATE "C" NOT NULL, number bigint NOT NULL,
  at double precision NOT NULL, run_id text COLLATE "C" NOT NULL, event text COLLATE "C" NOT NULL, body text COLLATE "C" NOT NULL,
  prev text COLLATE "C" NOT NULL, hash text COLLATE "C" NOT NULL, UNIQUE(writer, number))
  WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE audit_writers(
  writer text COLLATE "C" PRIMARY KEY, number bigint NOT NULL, hash text COLLATE "C" NOT NULL) WITH (fillfactor = 50);
CREATE TABLE audit_chained(
  writer text COLLATE "C" PRIMARY KEY, number bigint NOT NULL, hash text COLLATE "C" NOT NULL, seal text COLLATE "C" NOT NULL,
  at double precision NOT NULL) WITH (fillfactor = 50);
CREATE FUNCTION log_end_1(OUT seq bigint, OUT hash text) LANGUAGE sql STABLE AS
  'SELECT a.seq, a.hash FROM handrail.audit AS a ORDER BY a.seq DESC LIMIT 1';
CREATE FUNCTION take_log_1(
  space integer, my_writer text, checked bigint, patient boolean,
  OUT is_mine boolean, OUT has_pending boolean, OUT seq bigint, OUT hash text, OUT key_replaced boolean,
  OUT number bigint, OUT pending_hash text) LANGUAGE plpgsql AS $body$
BEGIN
  -- Each statement sees what was committed before it, so the end is read behind the locks. While a key is replaced, all wait.
  PERFORM pg_advisory_xact_lock_shared(space, 1025);
  is_mine := pg_try_advisory_xact_lock(space, 1024);
  IF NOT is_mine AND patient THEN
    PERFORM pg_advisory_xact_lock(space, 1024);
    is_mine := true;
  END IF;
  has_pending := EXISTS (SELECT 1 FROM handrail.audit_pending AS p ORDER BY p.id LIMIT 1);
  SELECT e.seq, e.hash INTO seq, hash FROM handrail.log_end_1() AS e;
  key_replaced := EXISTS (
    SELECT 1 FROM handrail.audit AS a WHERE a.seq > checked AND a.event = 'AuditKeyReplaced');
  SELECT w.number, w.hash INTO number, pending_hash FROM handrail.audit_writers AS w WHERE w.writer = my_writer;
END $body$;

CREATE FUNCTION be_all_1(made bigint, wanted bigint) RETURNS boolean LANGUAGE plpgsql AS $body$
BEGIN
  IF made < wanted THEN
    RAISE SQLSTATE '40001' USING MESSAGE = 'another process was quicker';
  END IF;
  RETURN true;
END $body$;

CREATE FUNCTION named_rows(space integer, names json) RETURNS TABLE(
  is_held boolean, scope text, key text, fingerprint text, run_id text, state text, replay text, fence bigint,
  lease_until double precision, begun double precision, value text, epoch bigint, tool text, place text, owner text)
  LANGUAGE plpgsql ROWS 64 AS $body$
#variable_conflict use_column
BEGIN
  -- Each act in a run is held until the commit; in one order, so that groups wait in a line. Two inserts of one act under
  -- two keys would not see each other. All acts share 1024 locks, since a server has room for a few thousand.
  PERFORM pg_advisory_xact_lock(space, turns.number) FROM (
    SELECT DISTINCT hashtext(concat_ws(chr(31), n ->> 0, n ->> 2, n ->> 3)) & 1023 AS number
    FROM json_array_elements(names) AS n WHERE n ->> 2 IS NOT NULL ORDER BY number) AS turns;
  -- The row of each key, held until the commit; in one order too.
  RETURN QUERY SELECT true, e.scope, e.key, e.fingerprint, e.run_id, e.state, e.replay, e.fence, e.lease_until, e.begun,
    e.value, e.epoch, e.tool, e.place, e.owner
  FROM (SELECT DISTINCT n ->> 0 AS scope, n ->> 1 AS key FROM json_array_elements(names) AS n) AS named
  JOIN handrail.effects AS e ON e.scope = named.scope AND e.key = named.key ORDER BY e.scope, e.key FOR UPDATE OF e;
  -- Of each act in a run the last row that did not fail.
  RETURN QUERY SELECT false, e.scope, e.key, e.fingerprint, e.run_id, e.state, e.replay, e.fence, e.lease_until, e.begun,
    e.value, e.epoch, e.tool, e.place, e.owner
  FROM (SELECT DISTINCT n ->> 0 AS scope, n ->> 2 AS run_id, n ->> 3 AS fingerprint
    FROM json_array_elements(names) AS n WHERE n ->> 2 IS NOT NULL) AS named
  CROSS JOIN LATERAL (
    SELECT * FROM handrail.effects AS act WHERE act.run_id = named.run_id AND act.fingerprint = named.fingerprint
      AND act.scope = named.scope AND act.state <> 'failed' ORDER BY act.begun DESC LIMIT 1) AS e;
END $body$;
-- How many groups each writer has committed, and what commits a group in one message; see stores/foreseen.py.
CREATE TABLE group_writers(
  writer text COLLATE "C" PRIMARY KEY, number bigint NOT NULL, before bigint NOT NULL, at double precision NOT NULL)
  WITH (fillfactor = 50);
CREATE FUNCTION count_group(my_writer text, my_number bigint) RETURNS void LANGUAGE plpgsql AS $body$
DECLARE
  clock double precision := extract(epoch FROM clock_timestamp());
BEGIN
  UPDATE handrail.group_writers AS w SET number = my_number, at = clock WHERE w.writer = my_writer AND w.number < my_number;
  IF NOT FOUND THEN
    INSERT INTO handrail.group_writers(writer, number, before, at) VALUES (my_writer, my_number, 0, clock)
    ON CONFLICT (writer) DO NOTHING;
    IF NOT FOUND THEN
      RAISE SQLSTATE '40001' USING MESSAGE = 'the writer has given this group up';
    END IF;
    -- those of processes that were killed long ago
    DELETE FROM handrail.group_writers AS w WHERE w.at < clock - 30 * 86400;
  END IF;
END $body$;

CREATE TABLE audit_sweeper(
  one bigint PRIMARY KEY CHECK(one = 1), writer text COLLATE "C" NOT NULL, until double precision NOT NULL)
  WITH (fillfactor = 50);
INSERT INTO audit_sweeper(one, writer, until) VALUES (1, '', 0);
CREATE FUNCTION take_sweep_1(my_writer text, lease_s double precision, OUT is_mine boolean, OUT has_pending boolean)
LANGUAGE plpgsql AS $body$
DECLARE
  clock double precision := extract(epoch FROM clock_timestamp());
BEGIN
  -- The turn to chain what is pending; it is given back where nothing is. Losing that in a crash costs a moment.
  PERFORM set_config('synchronous_commit', 'off', true);
  has_pending := EXISTS (SELECT 1 FROM handrail.audit_pending AS p ORDER BY p.id LIMIT 1);
  IF has_pending THEN
    UPDATE handrail.audit_sweeper AS s SET writer = my_writer, until = clock + lease_s WHERE s.one = (
      SELECT t.one FROM handrail.audit_sweeper AS t WHERE t.writer = my_writer OR t.until < clock FOR UPDATE SKIP LOCKED);
  ELSE
    UPDATE handrail.audit_sweeper AS s SET until = 0 WHERE s.writer = my_writer AND s.until > 0;
  END IF;
  is_mine := FOUND;
END $body$;
-- A row that is there already ends a group with its own error, which costs a row less than to ask before.
-- to ask before.
CREATE FUNCTION commit_group(
  space integer, my_owner text, given jsonb,
  OUT clock double precision, OUT is_chained boolean, OUT has_pending boolean, OUT seq bigint) LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan AS $body$
DECLARE
  started double precision := (given ->> 2)::double precision;
  acts jsonb := given -> 3;
  absent jsonb := given -> 4;
  changed jsonb := given -> 5;
  new_runs jsonb := given -> 6;
  entries jsonb := given -> 7;
  new_steps jsonb := given -> 8;
  claimed jsonb := given -> 9;
  results jsonb := given -> 10;
  log jsonb := given -> 11;
  records jsonb;
  made bigint;
  hash text;
  nothing text;
  otherwise CONSTANT text := 'not as expected';
BEGIN
  -- Plans are made while tables are empty, and kept. A limit that is not known then, and a scope that no index can help with,
  -- have the rows of a group looked up one by one, by their keys.
  clock := extract(epoch FROM clock_timestamp());
  IF started NOT BETWEEN clock - 5 AND clock + 0.1 THEN
    RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
  END IF;
  UPDATE handrail.group_writers AS w SET number = (given ->> 1)::bigint, at = clock
  WHERE w.writer = given ->> 0 AND w.number < (given ->> 1)::bigint;
  IF NOT FOUND THEN
    PERFORM handrail.count_group(given ->> 0, (given ->> 1)::bigint);
  END IF;
  IF jsonb_array_length(acts) > 0 THEN
    -- The locks of `named_rows`; and no act of these may be there.
    PERFORM pg_advisory_xact_lock(space, turns.number) FROM (
      SELECT DISTINCT hashtext(concat_ws(chr(31), n ->> 0, n ->> 1, n ->> 2)) & 1023 AS number
      FROM jsonb_array_elements(acts) AS n ORDER BY number) AS turns;
    PERFORM 1 FROM jsonb_array_elements(acts) AS n CROSS JOIN LATERAL (
      SELECT 1 FROM handrail.effects AS e WHERE e.run_id = n ->> 1 AND e.fingerprint = n ->> 2
        AND e.scope || '' = n ->> 0 AND e.state <> 'failed' LIMIT 1) AS act;
    IF FOUND THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
  END IF;
  IF jsonb_array_length(absent) > 0 THEN
    PERFORM 1 FROM (SELECT value AS n FROM jsonb_array_elements(absent) LIMIT jsonb_array_length(absent)) AS few
    JOIN handrail.effects AS e ON e.scope = n ->> 0 AND e.key = n ->> 1;
    IF FOUND THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
  END IF;
  IF jsonb_array_length(changed) > 0 THEN
    UPDATE handrail.effects AS e SET state = g ->> 5, lease_until = (g ->> 6)::double precision, value = g ->> 7,
      updated = clock
    FROM (SELECT value AS g FROM jsonb_array_elements(changed) LIMIT jsonb_array_length(changed)) AS few
    WHERE e.scope = g ->> 0 AND e.key = g ->> 1 AND e.fence = (g ->> 2)::bigint AND e.state = g ->> 3
      AND e.lease_until = (g ->> 4)::double precision;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made <> jsonb_array_length(changed) THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
  END IF;
  IF jsonb_array_length(new_runs) > 0 THEN
    INSERT INTO handrail.runs(
      run_id, toolset, journal_v, forked_from, forked_at, input, created, updated, owner, status, epoch)
    SELECT r ->> 0, r ->> 1, (r ->> 2)::bigint, r ->> 3, (r ->> 4)::bigint, r ->> 5, (r ->> 6)::double precision,
      (r ->> 7)::double precision, r ->> 8, 'running', 1
    FROM jsonb_array_elements(new_runs) AS r;
  END IF;
  IF jsonb_array_length(entries) > 0 THEN
    UPDATE handrail.runs AS r SET updated = (g ->> 2)::double precision, status = coalesce(g ->> 3, r.status),
      result = coalesce(g ->> 4, r.result), entered = r.entered + (g ->> 5)::bigint
    FROM (SELECT value AS g FROM jsonb_array_elements(entries) LIMIT jsonb_array_length(entries)) AS few
    WHERE r.run_id = g ->> 0 AND r.epoch = (g ->> 1)::bigint AND r.entered = (g ->> 6)::bigint AND r.cancel_requested = 0;
    GET DIAGNOSTICS made = ROW_COUNT;
    IF made <> jsonb_array_length(entries) THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
  END IF;
  IF jsonb_array_length(new_steps) > 0 THEN
    INSERT INTO handrail.steps(run_id, step_key, seq, kind, epoch, body, elapsed_s, at)
    SELECT r ->> 0, r ->> 1, (r ->> 2)::bigint, r ->> 3, (r ->> 4)::bigint, r ->> 5, (r ->> 6)::double precision,
      (r ->> 7)::double precision
    FROM jsonb_array_elements(new_steps) AS r;
  END IF;
  IF jsonb_array_length(claimed) > 0 THEN
    IF EXISTS (SELECT 1 FROM handrail.restored) THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
    INSERT INTO handrail.effects(
      scope, key, fingerprint, run_id, state, replay, fence, lease_until, begun, value, epoch, tool, place, owner, updated)
    SELECT r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, (r ->> 6)::bigint, (r ->> 7)::double precision,
      (r ->> 8)::double precision, r ->> 9, (r ->> 10)::bigint, r ->> 11, r ->> 12, my_owner, clock
    FROM jsonb_array_elements(claimed) AS r;
  END IF;
  IF jsonb_array_length(results) > 0 THEN
    DELETE FROM handrail.kept AS k WHERE (k.run_id, k.handle) IN (
      SELECT o.run_id, o.handle FROM handrail.kept AS o WHERE o.expires < clock LIMIT 2 FOR UPDATE SKIP LOCKED);
    INSERT INTO handrail.kept(run_id, handle, body, created, expires)
    SELECT r ->> 0, r ->> 1, decode(r ->> 2, 'base64'), clock, clock + (r ->> 3)::double precision
    FROM jsonb_array_elements(results) AS r;
  END IF;
  IF jsonb_array_length(log) > 0 THEN
    -- Records go behind the end of the log where that is as expected and free, and are pending elsewhere; see `take_log_1`.
    records := log -> 8;
    nothing := pg_advisory_xact_lock_shared(space, 1025);
    SELECT a.seq, a.hash INTO seq, hash FROM handrail.audit AS a ORDER BY a.seq DESC LIMIT 1;
    is_chained := seq = (log ->> 2)::bigint AND hash = log ->> 3;
    IF is_chained THEN
      is_chained := pg_try_advisory_xact_lock(space, 1024);
    END IF;
    IF is_chained THEN
      -- somebody may have had it until now; what is pending comes first
      SELECT EXISTS (SELECT 1 FROM handrail.audit_pending AS p ORDER BY p.id LIMIT 1), a.seq, a.hash INTO has_pending, seq, hash
      FROM handrail.audit AS a ORDER BY a.seq DESC LIMIT 1;
      is_chained := NOT has_pending AND seq = (log ->> 2)::bigint AND hash = log ->> 3;
    END IF;
    IF seq IS NULL THEN
      RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
    END IF;
    IF is_chained THEN
      INSERT INTO handrail.audit(seq, at, run_id, event, body, prev, hash)
      SELECT (r ->> 3)::bigint, started, r ->> 0, r ->> 1, r ->> 2, r ->> 4, r ->> 5
      FROM jsonb_array_elements(records) AS r;
    ELSE
      UPDATE handrail.audit_writers AS w SET number = (log ->> 6)::bigint, hash = log ->> 7
      WHERE w.writer = log ->> 0 AND w.number = (log ->> 4)::bigint AND w.hash = log ->> 5;
      IF NOT FOUND THEN
        -- A new writer does not know that the key was replaced. Of the others whoever replaces it deletes this row.
        PERFORM 1 FROM handrail.audit AS a WHERE a.seq > (log ->> 1)::bigint AND a.event = 'AuditKeyReplaced';
        IF FOUND THEN
          RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
        END IF;
        INSERT INTO handrail.audit_writers(writer, number, hash)
        SELECT log ->> 0, (log ->> 6)::bigint, log ->> 7 WHERE (log ->> 4)::bigint = 0 ON CONFLICT (writer) DO NOTHING;
        IF NOT FOUND THEN
          RAISE SQLSTATE '40001' USING MESSAGE = otherwise;
        END IF;
      END IF;
      INSERT INTO handrail.audit_pending(writer, number, at, run_id, event, body, prev, hash)
      SELECT log ->> 0, (r ->> 6)::bigint, started, r ->> 0, r ->> 1, r ->> 2, r ->> 7, r ->> 8
      FROM jsonb_array_elements(records) AS r;
    END IF;
  END IF;
END $body$;

-- made: The tables were made, in this version.
INSERT INTO schema_version(version, at) VALUES (%s, extract(epoch FROM clock_timestamp()))

-- take_log: Take the end of the log until the commit, if nobody else has it: whether that was so, and how the log stands.
SELECT is_mine, has_pending, seq, hash, key_replaced, number, pending_hash
FROM take_log_1(?::integer, ?::text, ?::bigint, ?::boolean)

-- take_sweep: Take the turn to chain what is pending, if nobody has it; give it back where nothing is.
SELECT is_mine, has_pending FROM take_sweep_1(?::text, ?::double precision)

-- take_key: Let nobody add to the log until the commit.
SELECT pg_advisory_xact_lock(?::integer, 1025)

-- pend: Records that get their place in the chain later.
INSERT INTO audit_pending(writer, number, at, run_id, event, body, prev, hash) VALUES (?)

-- pended: How far a writer's records reach that did not go straight into the chain.
INSERT INTO audit_writers(writer, number, hash) VALUES (?)
ON CONFLICT(writer) DO UPDATE SET number = excluded.number, hash = excluded.hash

-- pending: Records without a place in the chain, and up to where their writers' records have one.
SELECT p.id, p.writer, p.number, p.at, p.run_id, p.event, p.body, p.prev, p.hash, c.number, c.hash, c.seal
FROM audit_pending AS p LEFT JOIN audit_chained AS c ON c.writer = p.writer ORDER BY p.id LIMIT ?

-- chain: Give records their place in the chain.
WITH gone AS (DELETE FROM audit_pending AS p USING (VALUES (?)) AS g WHERE p.id = g.column1::bigint
    RETURNING g.column2::bigint, p.at, p.run_id, p.event, p.body, g.column3, g.column4)
INSERT INTO audit(seq, at, run_id, event, body, prev, hash) SELECT * FROM gone ON CONFLICT (seq) DO NOTHING RETURNING 1

-- refuse: Records that cannot have a place in the chain; another record says so.
DELETE FROM audit_pending WHERE id = ANY(?::bigint[])

-- chained: Up to where a writer's records have their place in the chain.
INSERT INTO audit_chained(writer, number, hash, seal, at) VALUES (?)
ON CONFLICT(writer) DO UPDATE SET number = excluded.number, hash = excluded.hash, seal = excluded.seal, at = excluded.at

-- forget_writer: A writer that has closed its store, and has no record without a place in the chain.
WITH gone AS (DELETE FROM audit_writers WHERE writer = ? RETURNING writer)
DELETE FROM audit_chained AS c USING gone WHERE c.writer = gone.writer

-- forget_writers: Writers that were killed long ago; one that is alive after all begins anew.
WITH gone AS (DELETE FROM audit_chained WHERE at < ? RETURNING writer)
DELETE FROM audit_writers AS w USING gone WHERE w.writer = gone.writer

-- forget_all_writers: Nothing is pending, and the notes are sealed with a key that is replaced: all writers begin anew.
WITH gone AS (DELETE FROM audit_chained) DELETE FROM audit_writers

-- lazily: A commit that need not be on the disk when it returns: were it lost, all would be as before.
SELECT set_config('synchronous_commit', 'off', true)

-- commit_group: A group in one message, written and committed only if everything is as expected.
SELECT clock, is_chained, has_pending, seq FROM commit_group(%s::integer, %s::text, %s::jsonb)

-- count_group: Count a group, so that its writer can ask later whether it was committed.
SELECT count_group(%s::text, %s::bigint)

-- outcome: The last group of a writer that was committed before this number; no group below the number is from now on.
INSERT INTO group_writers AS w(writer, number, before, at) VALUES (%s, %s, 0, extract(epoch FROM clock_timestamp()))
ON CONFLICT (writer) DO UPDATE SET before = CASE WHEN w.number < excluded.number THEN w.number ELSE w.before END,
  number = greatest(w.number, excluded.number), at = excluded.at
RETURNING before

-- forget_groups: The groups of a writer that ends.
DELETE FROM group_writers WHERE writer = %s

-- rows: The rows that a group names and whether they are held.
SELECT * FROM named_rows(%s::integer, %s::json)

-- clock: The server's time.
SELECT extract(epoch FROM clock_timestamp())::double precision

-- begin: Begin a transaction; the server's time, and what was lost if the store was set back.
BEGIN; SELECT extract(epoch FROM clock_timestamp())::double precision, since, at FROM (SELECT 1) AS one LEFT JOIN restored ON true

-- types: What type each column of our tables has.
SELECT table_name::text, column_name::text, data_type::text FROM information_schema.columns
WHERE table_schema = 'handrail'

-- insert: New rows. One that somebody else has inserted meanwhile is left out, and counted by its absence.
INSERT INTO effects(scope, key, fingerprint, run_id, state, replay, fence, lease_until, begun, value, epoch, tool, place, owner, updated)
SELECT r ->> 0, r ->> 1, r ->> 2, r ->> 3, r ->> 4, r ->> 5, (r ->> 6)::bigint, (r ->> 7)::double precision,
  (r ->> 8)::double precision, r ->> 9, (r ->> 10)::bigint, r ->> 11, r ->> 12, %s, extract(epoch FROM clock_timestamp())
FROM json_array_elements(%s::json) AS r ORDER BY 1, 2 ON CONFLICT (scope, key) DO NOTHING RETURNING 1

-- update: Rows of a group as they are now. A row gets a new owner when its fence grows.
UPDATE effects AS e SET fingerprint = g.fingerprint, run_id = g.run_id, state = g.state, replay = g.replay,
  owner = CASE WHEN g.fence > e.fence THEN %s ELSE e.owner END,
  resolved_by = CASE WHEN g.fence > e.fence THEN NULL ELSE e.resolved_by END, fence = g.fence, lease_until = g.lease_until,
  begun = g.begun, value = g.value, epoch = g.epoch, tool = g.tool, place = g.place, updated = extract(epoch FROM clock_timestamp())
FROM (SELECT r ->> 0 AS scope, r ->> 1 AS key, r ->> 2 AS fingerprint, r ->> 3 AS run_id, r ->> 4 AS state,
    r ->> 5 AS replay, (r ->> 6)::bigint AS fence, (r ->> 7)::double precision AS lease_until,
    (r ->> 8)::double precision AS begun, r ->> 9 AS value,
    (r ->> 10)::bigint AS epoch, r ->> 11 AS tool, r ->> 12 AS place FROM json_array_elements(%s::json) AS r) AS g
WHERE e.scope = g.scope AND e.key = g.key

-- keep: A long result of a run.
INSERT INTO kept(run_id, handle, body, created, expires)
SELECT %s, %s, %s, now, now + %s FROM (SELECT extract(epoch FROM clock_timestamp())::double precision AS now) AS clock

-- forget: Two texts that have expired; run for each new one, so that they go in time and nobody waits for it.
DELETE FROM kept WHERE (run_id, handle) IN (
  SELECT run_id, handle FROM kept WHERE expires < extract(epoch FROM clock_timestamp()) LIMIT 2 FOR UPDATE SKIP LOCKED)

-- kept: A long result that has not expired.
SELECT body FROM kept WHERE run_id = %s AND handle = %s AND expires >= extract(epoch FROM clock_timestamp())

-- columns: The names of a table's columns.
SELECT column_name::text FROM information_schema.columns WHERE table_schema = 'handrail' AND table_name = %s
ORDER BY ordinal_position

-- size: The bytes of all our tables and their indexes.
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'handrail' AND c.relkind = 'r'

-- has_queue: Whether the tables of procrastinate are there, and our function with them; see `dispatch/procrastinate.sql`.
SELECT to_regproc('handrail_jobs.handrail_enqueue') IS NOT NULL

-- enqueue: A segment, behind the others of its lane.
SELECT handrail_jobs.handrail_enqueue(?, ?, ?, ?, ?)
