-- The tables and functions of a journal. {schema} is the quoted name of the schema, {lock} the key of its advisory lock.

CREATE TABLE {schema}.millrace_journal (
    n bigint PRIMARY KEY,
    record bytea NOT NULL
) PARTITION BY RANGE (n);
-- Records are compressed already.
ALTER TABLE {schema}.millrace_journal ALTER record SET STORAGE EXTERNAL;

-- A single row. Its key is the number itself, so that a placing finds the row by an index also while an old snapshot
-- (a backup, a long query) keeps millions of dead versions of it.
CREATE TABLE {schema}.millrace_head (
    n bigint PRIMARY KEY,
    tip bytea NOT NULL
);
INSERT INTO {schema}.millrace_head (n, tip) VALUES (0, decode(repeat('00', 16), 'hex'));

CREATE TABLE {schema}.millrace_manifest (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL,
    manifest bytea NOT NULL
);

CREATE TABLE {schema}.millrace_parts (
    name text COLLATE "C" PRIMARY KEY,
    bytes bytea NOT NULL,
    stored_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE {schema}.millrace_parts ALTER bytes SET STORAGE EXTERNAL;

CREATE TABLE {schema}.millrace_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic text NOT NULL,
    key text,
    headers json,
    payload json NOT NULL,
    event_id text NOT NULL DEFAULT gen_random_uuid()::text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- Rows live for milliseconds: compressing them would only cost time, and their sizes are read without unpacking.
ALTER TABLE {schema}.millrace_outbox ALTER payload SET STORAGE EXTERNAL, ALTER headers SET STORAGE EXTERNAL;

CREATE TABLE {schema}.millrace_outbox_refused (
    id bigint PRIMARY KEY,
    topic text NOT NULL,
    key text,
    headers json,
    payload json NOT NULL,
    event_id text NOT NULL,
    reason text NOT NULL,
    refused_at timestamptz NOT NULL DEFAULT now()
);

-- Sees to it that at least the next `records` numbers after the head have partitions. Returns the first number without.
CREATE FUNCTION {schema}.millrace_make_partitions(records bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $millrace$
DECLARE
    head bigint;
    first bigint;
    past bigint;
    partition text;
BEGIN
    IF records IS NULL OR records NOT BETWEEN 1 AND 1000000000 THEN
        RAISE EXCEPTION 'a partition holds 1 to 1000000000 records, not %', records USING ERRCODE = '22023';
    END IF;
    PERFORM pg_advisory_xact_lock({lock});
    SELECT max(h.n) INTO STRICT head FROM {schema}.millrace_head h;
    SELECT max((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''?(\d+)''?\)'))[1]::bigint) INTO past
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = '{schema}.millrace_journal'::regclass;
    past := coalesce(past, 0);
    WHILE past <= head + records LOOP
        first := greatest(past, (head + 1) / records * records);
        past := (first / records + 1) * records;
        partition := 'millrace_journal_' || lpad(first::text, 19, '0');
        -- ATTACH does not wait for placings and placings do not wait for it, unlike CREATE TABLE … PARTITION OF.
        EXECUTE format('CREATE TABLE {schema}.%I (LIKE {schema}.millrace_journal INCLUDING ALL) '
            'WITH (toast_tuple_target = 8160)', partition);
        EXECUTE format('ALTER TABLE {schema}.millrace_journal ATTACH PARTITION {schema}.%I '
            'FOR VALUES FROM (%s) TO (%s)', partition, first, past);
    END LOOP;
    RETURN past;
END
$millrace$;

-- Drops the oldest partition if all its numbers are below `below` and below the head. Returns whether it did.
-- Dropping waits for readers of the journal, and placings wait for the dropping: hence the short lock_timeout.
CREATE FUNCTION {schema}.millrace_drop_partition(below bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '100ms' AS $millrace$
DECLARE
    head bigint;
    partition text;
BEGIN
    SELECT max(h.n) INTO STRICT head FROM {schema}.millrace_head h;
    SELECT p.relname INTO partition FROM (
        SELECT c.relname, (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''?(\d+)''?\)'))[1]::bigint AS past
            FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = '{schema}.millrace_journal'::regclass
    ) p WHERE p.past <= below AND p.past <= head ORDER BY p.past LIMIT 1;
    IF partition IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS {schema}.%I', partition);
    RETURN true;
END
$millrace$;

-- Puts an event into the outbox, as a part of the caller's transaction. Returns the id of the event.
CREATE FUNCTION {schema}.millrace_publish(
    topic text, payload text, key text DEFAULT NULL, headers text DEFAULT NULL, event_id text DEFAULT NULL
) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $millrace$
DECLARE
    made text;
BEGIN
    -- With or without a namespace before a slash.
    IF topic IS NULL OR octet_length(regexp_replace(topic, '^.*/', '')) > 251
        OR topic COLLATE "C" !~ '^([A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*/)?[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*$' THEN
        RAISE EXCEPTION 'millrace_publish: % is no topic', coalesce(quote_literal(topic), 'NULL') USING
            ERRCODE = '22023', HINT = 'A topic has 1 to 251 of the characters A-Z a-z 0-9 . _ : - and no empty part '
                'before, between or after dots. A namespace may stand before it, with a slash.';
    END IF;
    IF payload IS NULL THEN
        RAISE EXCEPTION 'millrace_publish: the payload is NULL' USING
            ERRCODE = '22004', HINT = 'An event without content has the payload ''null''.';
    END IF;
    IF event_id COLLATE "C" !~ '^[ -~]{1,255}$' THEN
        RAISE EXCEPTION 'millrace_publish: % is no id of an event', quote_literal(event_id) USING
            ERRCODE = '22023', HINT = 'An id has 1 to 255 printable ASCII characters; NULL makes a random UUID.';
    END IF;
    IF headers IS NOT NULL AND (json_typeof(headers::json) <> 'object'
        OR EXISTS (SELECT FROM json_each(headers::json) h WHERE json_typeof(h.value) <> 'string')) THEN
        RAISE EXCEPTION 'millrace_publish: the headers are no JSON object of strings' USING
            ERRCODE = '22023', HINT = 'Such as ''{"trace":"4711"}''.';
    END IF;
    INSERT INTO {schema}.millrace_outbox AS o (topic, key, headers, payload, event_id)
        VALUES (topic, key, headers::json, payload::json, coalesce(event_id, gen_random_uuid()::text))
        RETURNING o.event_id INTO made;
    RETURN made;
END
$millrace$;

-- For callers that have json or jsonb values. A literal and an untyped parameter go to the function above.
CREATE FUNCTION {schema}.millrace_publish(
    topic text, payload json, key text DEFAULT NULL, headers json DEFAULT NULL, event_id text DEFAULT NULL
) RETURNS text LANGUAGE sql AS $millrace$
    SELECT {schema}.millrace_publish(topic, payload::text, key, headers::text, event_id)
$millrace$;

CREATE FUNCTION {schema}.millrace_publish(
    topic text, payload jsonb, key text DEFAULT NULL, headers jsonb DEFAULT NULL, event_id text DEFAULT NULL
) RETURNS text LANGUAGE sql AS $millrace$
    SELECT {schema}.millrace_publish(topic, payload::text, key, headers::text, event_id)
$millrace$;

REVOKE ALL ON FUNCTION
    {schema}.millrace_make_partitions(bigint),
    {schema}.millrace_drop_partition(bigint),
    {schema}.millrace_publish(text, text, text, text, text),
    {schema}.millrace_publish(text, json, text, json, text),
    {schema}.millrace_publish(text, jsonb, text, jsonb, text)
FROM PUBLIC;

-- The last one: whoever sees this function sees everything above.
CREATE FUNCTION {schema}.millrace_schema_version() RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1';
