-- The columns of what this role may read, in order; a table outside of the search path is named with its schema.
SELECT
    CASE WHEN pg_table_is_visible(c.oid) THEN c.relname ELSE n.nspname || '.' || c.relname END AS table_name,
    CASE WHEN c.relkind IN ('v', 'm') THEN 'view' ELSE 'table' END AS kind,
    a.attname,
    format_type(a.atttypid, a.atttypmod),
    NOT a.attnotnull,
    EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
    coalesce((
        SELECT k.confrelid::regclass || '.' || f.attname
        FROM pg_constraint k
        JOIN pg_attribute f ON f.attrelid = k.confrelid AND f.attnum = k.confkey[array_position(k.conkey, a.attnum)]
        WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY (k.conkey)
        LIMIT 1
    ), '')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relkind IN ('r', 'v', 'm', 'f', 'p')
    AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
    AND has_table_privilege(c.oid, 'SELECT')
ORDER BY n.nspname, c.relname, a.attnum
