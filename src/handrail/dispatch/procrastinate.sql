-- schema: Everything of procrastinate lies here, so that an application's own procrastinate is not touched.
CREATE SCHEMA IF NOT EXISTS handrail_jobs

-- applied_table: Which of procrastinate's migrations were applied: it keeps no such list itself.
CREATE TABLE IF NOT EXISTS handrail_jobs.handrail_migrations(
  name text COLLATE "C" PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp())

-- applied: The migrations that were applied.
SELECT name FROM handrail_jobs.handrail_migrations

-- was_applied: A migration was applied.
INSERT INTO handrail_jobs.handrail_migrations(name) VALUES (%s) ON CONFLICT DO NOTHING

-- indexes: Those of our own: the jobs of a run, and the last turn of a lane.
ALTER TABLE handrail_jobs.procrastinate_jobs SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
CREATE INDEX IF NOT EXISTS handrail_run ON handrail_jobs.procrastinate_jobs(lock) WHERE status IN ('todo', 'doing');
CREATE INDEX IF NOT EXISTS handrail_lane ON handrail_jobs.procrastinate_jobs(queue_name, (args->>'lane'), priority)
  WHERE status = 'todo'

-- enqueue: The function that the store calls in its transaction; false where the segment is there. A segment gets the turn
-- behind the last of its lane, and not before the turn that runs now; lanes take turns. Its priority is that turn as a
-- negative number; one above 0 says that a worker has died in the segment. A minimum over the lane would read all of it,
-- while `ORDER BY ... LIMIT 1` reads one row.
CREATE OR REPLACE FUNCTION handrail_jobs.handrail_enqueue(
  new_run text, new_number bigint, new_queue text, new_name text, new_lane text)
RETURNS boolean LANGUAGE plpgsql SET search_path = handrail_jobs AS $$
DECLARE
  present integer;
  own integer;
BEGIN
  PERFORM FROM procrastinate_jobs WHERE lock = new_run AND status IN ('todo', 'doing')
    AND (args->>'number')::bigint = new_number;
  IF FOUND THEN
    RETURN false;
  END IF;
  SELECT min(priority) INTO present FROM procrastinate_jobs
    WHERE status = 'doing' AND queue_name = new_queue AND priority <= 0;
  IF present IS NULL THEN
    SELECT priority INTO present FROM procrastinate_jobs
      WHERE status = 'todo' AND priority <= 0 ORDER BY priority DESC, id LIMIT 1;
  END IF;
  SELECT priority - 1 INTO own FROM procrastinate_jobs
    WHERE status = 'todo' AND queue_name = new_queue AND args->>'lane' = new_lane
    ORDER BY queue_name, (args->>'lane'), priority LIMIT 1;
  own := least(0, present, own);
  PERFORM procrastinate_defer_jobs_v1(ARRAY[ROW(new_queue, 'handrail.segment', own, new_run, NULL,
    jsonb_build_object('number', new_number, 'queue', new_name, 'lane', new_lane, 'turn', own), NULL
    )::procrastinate_job_to_defer_v1]);
  RETURN true;
END $$

-- functions: The functions of procrastinate that do not yet look into this schema whoever calls them.
SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'handrail_jobs' AND p.proconfig IS NULL

-- mine: What a statement begins with that settles a job: nothing happens where another worker has it by now.
WITH mine AS MATERIALIZED (
  SELECT id FROM procrastinate_jobs WHERE id = %(job_id)s AND status = 'doing'
    AND worker_id IS NOT DISTINCT FROM %(worker_id)s AND attempts = %(attempts)s FOR UPDATE)

-- owned: Whether a worker still has a job.
SELECT id FROM mine

-- finish: A job has ended.
SELECT procrastinate_finish_job_v1(id, %(status)s, %(delete_job)s) FROM mine

-- retry: A job waits again, at once or from a later time on.
SELECT procrastinate_retry_job_v2(id, coalesce(%(retry_at)s, now()), %(priority)s, %(queue)s, %(lock)s) FROM mine

-- held: The jobs that these workers have.
SELECT id, status, task_name, priority, lock, queueing_lock, args, scheduled_at, queue_name, attempts, worker_id
FROM procrastinate_jobs WHERE status = 'doing' AND worker_id = ANY(%(workers)s::bigint[])
