-- The history: what was published, where the outbox is partitioned by day ("outbox.partition: day"). A completion moves a row here in place of marking it,
-- so that the outbox holds what is open or abandoned, and whole days of the history are dropped in place of removing rows. Writers whose message ids have a
-- time take no lock of it.
--
-- Its columns are those of the outbox. Rows are identified by what identifies them there, and by their day, which a partitioned key has to have.
CREATE TABLE {{table}}_history (
    id                bigint      NOT NULL,
    created_at        timestamptz NOT NULL,
    available_at      timestamptz,
    expires_at        timestamptz,
    message_id        uuid        NOT NULL,
    priority          integer     NOT NULL,
    shard             smallint    NOT NULL,
    target_broker     text        NOT NULL,
    stream            text        NOT NULL,
    type              text        NOT NULL,
    ordering_key      text,
    content_type      text        NOT NULL,
    aggregate_type    text,
    aggregate_id      text,
    correlation_id    text,
    causation_id      text,
    tenant_id         text,
    headers           text,
    last_error        text,
    deferred          boolean     NOT NULL,
    isolated          boolean     NOT NULL,
    crashes           integer     NOT NULL,
    attempts          integer     NOT NULL,
    locked_until      timestamptz,
    published_at      timestamptz NOT NULL,
    finished_at       timestamptz NOT NULL,
    lock_token        uuid,
    status            text        NOT NULL,
    locked_by         text,
    broker_message_id text,
    payload           bytea       NOT NULL,
    CONSTRAINT {{name}}_history_pkey PRIMARY KEY (message_id, target_broker, published_at)
) PARTITION BY RANGE (published_at);

-- What {{name}}_published and {{name}}_search are to the outbox: see there.
CREATE INDEX {{name}}_history_time ON {{table}}_history (target_broker, published_at);
CREATE INDEX {{name}}_history_search ON {{table}}_history (
    (id + 0),
    (coalesce(hashtext(ltrim(substr(ordering_key, strpos(ordering_key, '::') + 1), ':')) % 32767, 32767)::smallint),
    (coalesce(hashtext(aggregate_id) % 32767, 32767)::smallint),
    (coalesce(hashtext(correlation_id) % 32767, 32767)::smallint),
    (coalesce(hashtext(causation_id) % 32767, 32767)::smallint),
    (coalesce(hashtext(tenant_id) % 32767, 32767)::smallint),
    (coalesce(hashtext(substr(headers, nullif(strpos(headers, '"traceparent":"00-'), 0) + 18, 32)) % 32767, 32767)::smallint),
    ((hashtext(type) % 32767)::smallint),
    ((hashtext(target_broker) % 32767)::smallint)
);

-- The functions belong to the owner of the tables and run with its rights: what they call is PostgreSQL's own, and each table has its schema in front, which
-- this block fills in for "home.". So nothing that others have made there can take the place of either.
--
-- goose, which may apply this, takes what is between two lines of its own for one statement.
-- +goose StatementBegin
DO $do$
DECLARE
    home text := (SELECT quote_ident(nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = '{{table}}_history'::regclass);
BEGIN
IF home ~ '[''%$]' THEN -- which it would have to be written differently for in each place
    RAISE EXCEPTION 'the functions of the history cannot name the schema %: use one without quotes, dollar and percent signs', home;
END IF;
EXECUTE replace($make$

-- Make the partitions that are missing, from yesterday to a week ahead, and the trigger's function for today; return up to when rows can be moved to the
-- history, which is as long as that function knows the days. Days are those of UTC. ATTACH, unlike CREATE ... PARTITION OF, leaves the history to those who
-- write to it. Whoever comes while another is at it gets what is there.
CREATE FUNCTION home.{{name}}_history_days() RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    mark  text := '-- ' || to_char(today, 'YYYY-MM-DD') || chr(10); -- of the function that was made today
    ours  oid := 'home.{{name}}_history'::regclass;
    day   date;
    part  text;
    known text; -- the function that is there
BEGIN
    IF pg_try_advisory_xact_lock(ours::bigint) THEN
        FOR day IN SELECT today + n FROM generate_series(-1, 7) AS n LOOP
            part := 'home.{{name}}_day_' || to_char(day, 'YYYYMMDD');
            IF to_regclass(part) IS NULL THEN
                EXECUTE format('CREATE TABLE %s (LIKE home.{{name}}_history)', part);
                EXECUTE format('ALTER TABLE home.{{name}}_history ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                               part, to_char(day, 'YYYY-MM-DD 00:00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00:00+00'));
            ELSIF day <= today + 1 AND NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = ours AND inhrelid = to_regclass(part)) THEN
                RAISE EXCEPTION '% is there, and is no partition of the history: rename it', part;
            END IF;
        END LOOP;
        SELECT prosrc INTO known FROM pg_proc WHERE oid = to_regprocedure('home.{{name}}_history_known()');
        IF strpos(coalesce(known, ''), mark) = 0 THEN
            -- A message that the history has is not stored again. The primary key of the outbox cannot know: so once it has let a row in, and has waited for
            -- whoever was moving a row of the same message, the history is looked at, and the new row is removed if it is there. A message id of version 7
            -- has its time in front. One from yesterday on, an hour being granted to clocks, was published since: it is looked for in the days that are near
            -- and in no other, so that whoever writes messages takes no lock of the history, nor of the day that is to be dropped, and one plan serves for all.
            -- It is made when a session writes the first message of a day, which may be empty by all that is known: so no day is read from end to end, and
            -- no index but the primary key serves the comparison. An id whose time lies ahead was made up, and is looked for everywhere.
            EXECUTE format($function$
CREATE OR REPLACE FUNCTION home.{{name}}_history_known() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $body$
%1$sBEGIN
    IF NEW.message_id >= %2$L AND NEW.message_id < %3$L AND substr(NEW.message_id::text, 15, 1) = '7' THEN
        IF EXISTS (SELECT FROM %4$s WHERE message_id = NEW.message_id AND target_broker || '' = NEW.target_broker)
           OR EXISTS (SELECT FROM %5$s WHERE message_id = NEW.message_id AND target_broker || '' = NEW.target_broker)
           OR EXISTS (SELECT FROM %6$s WHERE message_id = NEW.message_id AND target_broker || '' = NEW.target_broker) THEN
            DELETE FROM home.{{name}} WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker;
        END IF;
    ELSIF EXISTS (SELECT FROM home.{{name}}_history WHERE message_id = NEW.message_id AND target_broker || '' = NEW.target_broker) THEN
        DELETE FROM home.{{name}} WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker;
    END IF;
    RETURN NULL;
END
$body$ $function$, mark,
                           (lpad(to_hex((extract(epoch FROM (today - 1)::timestamp AT TIME ZONE 'UTC' + interval '1 hour') * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid,
                           (lpad(to_hex((extract(epoch FROM (today + 2)::timestamp AT TIME ZONE 'UTC' + interval '1 hour') * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid,
                           'home.{{name}}_day_' || to_char(today - 1, 'YYYYMMDD'), 'home.{{name}}_day_' || to_char(today, 'YYYYMMDD'),
                           'home.{{name}}_day_' || to_char(today + 1, 'YYYYMMDD'));
            REVOKE ALL ON FUNCTION home.{{name}}_history_known() FROM PUBLIC;
        END IF;
    END IF;
    SELECT prosrc INTO known FROM pg_proc WHERE oid = to_regprocedure('home.{{name}}_history_known()');
    day := CASE WHEN strpos(known, mark) > 0 THEN today + 2 ELSE today END;
    IF (SELECT count(*) FROM pg_inherits
         WHERE inhparent = ours
           AND inhrelid IN (to_regclass('home.{{name}}_day_' || to_char(today, 'YYYYMMDD')), to_regclass('home.{{name}}_day_' || to_char(today + 1, 'YYYYMMDD')))) < 2 THEN
        day := today;
    END IF;
    RETURN day::timestamp AT TIME ZONE 'UTC';
END
$$;

-- Take the partition of a day out of the history, if its day ended a day ago; {{name}}_history_drop removes it. This waits for the completions that are in
-- progress, and no longer than a moment: what comes behind it waits as long. False: there is none of that day, or the trigger still looks there.
CREATE FUNCTION home.{{name}}_history_detach(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    part text := 'home.{{name}}_day_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF day >= (clock_timestamp() AT TIME ZONE 'UTC')::date - 1
       OR NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = 'home.{{name}}_history'::regclass AND inhrelid = to_regclass(part))
       OR strpos((SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('home.{{name}}_history_known()')), part) > 0 THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE home.{{name}}_history DETACH PARTITION %s', part);
    EXECUTE format('COMMENT ON TABLE %s IS %L', part, 'detached from home.{{name}}_history, to be dropped');
    RETURN true;
END
$$;

-- Drop what {{name}}_history_detach has taken out of the history, which it has left a comment on, and return why some of it is still there, or ''. No other
-- session has a lock of it.
CREATE FUNCTION home.{{name}}_history_drop() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    part     regclass;
    problems text := '';
BEGIN
    FOR part IN SELECT c.oid
                  FROM pg_class AS h
                  JOIN pg_class AS c ON c.relnamespace = h.relnamespace AND c.relkind = 'r' AND NOT c.relispartition AND c.relowner = h.relowner
                 WHERE h.oid = 'home.{{name}}_history'::regclass AND obj_description(c.oid, 'pg_class') = 'detached from home.{{name}}_history, to be dropped' LOOP
        BEGIN
            EXECUTE format('DROP TABLE %s', part);
        EXCEPTION WHEN OTHERS THEN -- others can go
            problems := concat_ws('; ', nullif(problems, ''), sqlerrm);
        END;
    END LOOP;
    RETURN problems;
END
$$;

-- Bring rows of the history back to the outbox, published as they are, so that an operator can act on them as on any other, and return how many. Of a message
-- that stands in both, the one of the outbox counts; of one that stands in the history twice, one. An operator need not have the right to read what is moved.
-- Plan: the rows by {{name}}_history_pkey, in each partition.
CREATE FUNCTION home.{{name}}_history_restore(message_ids uuid[], brokers text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    restored bigint;
BEGIN
    WITH moved AS (
        DELETE FROM home.{{name}}_history AS m
         USING unnest(message_ids, brokers) AS found (message_id, target_broker)
         WHERE m.message_id = ANY (message_ids) AND m.message_id = found.message_id AND m.target_broker = found.target_broker
           AND NOT EXISTS (SELECT FROM home.{{name}} AS o WHERE o.message_id = found.message_id AND o.target_broker = found.target_broker)
        RETURNING m.*
    )
    INSERT INTO home.{{name}}
         ( id, created_at, available_at, expires_at, message_id, priority, target_broker, stream
         , type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id
         , headers, last_error, deferred, isolated, crashes, attempts, locked_until, published_at
         , finished_at, lock_token, status, locked_by, broker_message_id, payload)
    SELECT id, created_at, available_at, expires_at, message_id, priority, target_broker, stream
         , type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id, tenant_id
         , headers, last_error, deferred, isolated, crashes, attempts, locked_until, published_at
         , finished_at, lock_token, status, locked_by, broker_message_id, payload
      FROM moved
        ON CONFLICT (message_id, target_broker) DO NOTHING;
    GET DIAGNOSTICS restored = ROW_COUNT;
    RETURN restored;
END
$$;

REVOKE ALL ON FUNCTION home.{{name}}_history_days(), home.{{name}}_history_detach(date), home.{{name}}_history_drop(), home.{{name}}_history_restore(uuid[], text[]) FROM PUBLIC;

$make$, 'home.', home || '.');
PERFORM {{table}}_history_days();
END
$do$;
-- +goose StatementEnd

-- A transaction that has written messages is not waited for without end: whoever writes others waits behind this. It is longer than deadlock_timeout, after
-- which a vacuum gives way.
-- +goose StatementBegin
DO $do$
BEGIN
PERFORM set_config('lock_timeout', '2s', true);
CREATE TRIGGER {{name}}_history_known AFTER INSERT ON {{table}} FOR EACH ROW EXECUTE FUNCTION {{table}}_history_known();
END
$do$;
-- +goose StatementEnd

-- All rows, wherever they are.
CREATE VIEW {{table}}_all AS
SELECT id, created_at, available_at, expires_at, message_id, priority, shard, target_broker
     , stream, type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id
     , tenant_id, headers, last_error, deferred, isolated, crashes, attempts, locked_until
     , published_at, finished_at, lock_token, status, locked_by, broker_message_id, payload
  FROM {{table}}
 UNION ALL
SELECT id, created_at, available_at, expires_at, message_id, priority, shard, target_broker
     , stream, type, ordering_key, content_type, aggregate_type, aggregate_id, correlation_id, causation_id
     , tenant_id, headers, last_error, deferred, isolated, crashes, attempts, locked_until
     , published_at, finished_at, lock_token, status, locked_by, broker_message_id, payload
  FROM {{table}}_history;
