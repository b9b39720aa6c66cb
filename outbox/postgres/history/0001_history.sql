-- The history: what was published, where the outbox is partitioned by day ("outbox.partition: day"). A completion moves a row here in place of marking it,
-- so that the outbox holds what is open or abandoned, and whole days of the history are dropped in place of removing rows. Writers of the outbox never take
-- a lock of it.
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

-- Make the partitions that are missing, from yesterday to a week ahead, and the trigger's function for today; return up to when rows can be moved to the
-- history, which is as long as that function knows the days. Days are those of UTC. ATTACH, unlike CREATE ... PARTITION OF, leaves the history to those who
-- write to it. Whoever comes while another is at it gets what is there.
CREATE FUNCTION {{table}}_history_days() RETURNS timestamptz
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    day   date;
    home  text;
    part  text;
    mark  text := '-- ' || to_char(today, 'YYYY-MM-DD') || chr(10); -- of the function that was made today
    known text; -- the function that is there
BEGIN
    SELECT quote_ident(n.nspname), format('%I.%s', n.nspname, left(c.relname, -length('history')) || 'day_') INTO home, part
      FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
     WHERE c.oid = '{{table}}_history'::regclass;
    IF pg_try_advisory_xact_lock('{{table}}_history'::regclass::oid::bigint) THEN
        FOR day IN SELECT today + n FROM generate_series(-1, 7) AS n LOOP
            CONTINUE WHEN to_regclass(part || to_char(day, 'YYYYMMDD')) IS NOT NULL;
            EXECUTE format('CREATE TABLE %s (LIKE {{table}}_history)', part || to_char(day, 'YYYYMMDD'));
            EXECUTE format('ALTER TABLE {{table}}_history ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
                           part || to_char(day, 'YYYYMMDD'), to_char(day, 'YYYY-MM-DD 00:00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00:00+00'));
        END LOOP;
        SELECT prosrc INTO known FROM pg_proc WHERE oid = to_regprocedure(home || '.{{name}}_history_known()');
        IF strpos(coalesce(known, ''), mark) = 0 THEN
            -- A message that the history has is not stored again: the primary key of the outbox cannot know. A message id of version 7 has its time in front.
            -- One from yesterday on, an hour being granted to clocks, was published since: it is looked for in the days that are near and in no other, so
            -- that whoever writes messages takes no lock of the history, nor of the day that is to be dropped, and one plan serves for all. Where a row of the
            -- message is there, one that is just being moved is waited for, and then found in the history; others do not go while this transaction lasts.
            EXECUTE format($function$
CREATE OR REPLACE FUNCTION %1$s.{{name}}_history_known() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $body$
%2$sBEGIN
    PERFORM FROM {{table}} WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker FOR KEY SHARE;
    IF NEW.message_id >= %3$L AND substr(NEW.message_id::text, 15, 1) = '7' THEN
        IF EXISTS (SELECT FROM %4$s WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker)
           OR EXISTS (SELECT FROM %5$s WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker)
           OR EXISTS (SELECT FROM %6$s WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker) THEN
            RETURN NULL;
        END IF;
    ELSIF EXISTS (SELECT FROM {{table}}_history WHERE message_id = NEW.message_id AND target_broker = NEW.target_broker) THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END
$body$ $function$, home, mark,
                           (lpad(to_hex((extract(epoch FROM (today - 1)::timestamp AT TIME ZONE 'UTC' + interval '1 hour') * 1000)::bigint), 12, '0') || '70008000000000000000')::uuid,
                           part || to_char(today - 1, 'YYYYMMDD'), part || to_char(today, 'YYYYMMDD'), part || to_char(today + 1, 'YYYYMMDD'));
            EXECUTE format('REVOKE ALL ON FUNCTION %s.{{name}}_history_known() FROM PUBLIC', home);
        END IF;
    END IF;
    SELECT prosrc INTO known FROM pg_proc WHERE oid = to_regprocedure(home || '.{{name}}_history_known()');
    day := CASE WHEN strpos(known, mark) > 0 THEN today + 2 ELSE today END;
    IF (SELECT count(*) FROM pg_inherits
         WHERE inhparent = '{{table}}_history'::regclass
           AND inhrelid IN (to_regclass(part || to_char(today, 'YYYYMMDD')), to_regclass(part || to_char(today + 1, 'YYYYMMDD')))) < 2 THEN
        day := today;
    END IF;
    RETURN day::timestamp AT TIME ZONE 'UTC';
END
$$;

-- Take the partition of a day out of the history, if its day ended a day ago; {{table}}_history_drop removes it. This waits for the completions that are in
-- progress, and no longer than a moment: what comes behind it waits as long. False: there is none of that day, or the trigger still looks there.
CREATE FUNCTION {{table}}_history_detach(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    part regclass := (SELECT c.oid FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
                       WHERE i.inhparent = '{{table}}_history'::regclass AND right(c.relname, 13) = '_day_' || to_char(day, 'YYYYMMDD'));
BEGIN
    IF part IS NULL OR day >= (clock_timestamp() AT TIME ZONE 'UTC')::date - 1
       OR strpos((SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('{{table}}_history_known()')), '_day_' || to_char(day, 'YYYYMMDD')) > 0 THEN
        RETURN false;
    END IF;
    EXECUTE format('ALTER TABLE {{table}}_history DETACH PARTITION %s', part);
    EXECUTE format('COMMENT ON TABLE %s IS %L', part, 'detached from {{table}}_history, to be dropped');
    RETURN true;
END
$$;

-- Drop what {{table}}_history_detach has taken out of the history, which it has left a comment on. No other session has a lock of it.
CREATE FUNCTION {{table}}_history_drop() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT c.oid
                  FROM pg_class AS h
                  JOIN pg_class AS c ON c.relnamespace = h.relnamespace AND c.relkind = 'r' AND NOT c.relispartition AND c.relowner = h.relowner
                 WHERE h.oid = '{{table}}_history'::regclass AND right(c.relname, 13) ~ '^_day_[0-9]{8}$'
                   AND obj_description(c.oid, 'pg_class') = 'detached from {{table}}_history, to be dropped' LOOP
        EXECUTE format('DROP TABLE %s', part);
    END LOOP;
END
$$;

-- Bring rows of the history back to the outbox, published as they are, so that an operator can act on them as on any other, and return how many. Of a message that
-- stands in both, the one of the outbox counts; of one that stands in the history twice, one. An operator need not have the right to read what is moved.
-- Plan: the rows by {{name}}_history_pkey, in each partition.
CREATE FUNCTION {{table}}_history_restore(message_ids uuid[], brokers text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    restored bigint;
BEGIN
    WITH moved AS (
        DELETE FROM {{table}}_history AS m
         USING unnest(message_ids, brokers) AS found (message_id, target_broker)
         WHERE m.message_id = ANY (message_ids) AND m.message_id = found.message_id AND m.target_broker = found.target_broker
           AND NOT EXISTS (SELECT FROM {{table}} AS o WHERE o.message_id = found.message_id AND o.target_broker = found.target_broker)
        RETURNING m.*
    )
    INSERT INTO {{table}}
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

-- The functions run with their owner's rights, find the tables beside them and nothing of their caller's, and are for relays and operators alone.
DO $$
DECLARE
    home text := (SELECT quote_ident(nspname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = '{{table}}_history'::regclass);
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['days()', 'detach(date)', 'drop()', 'restore(uuid[], text[])'] LOOP
        EXECUTE format('ALTER FUNCTION {{table}}_history_%s SET search_path = pg_catalog, %s, pg_temp', name, home);
        EXECUTE format('REVOKE ALL ON FUNCTION {{table}}_history_%s FROM PUBLIC', name);
    END LOOP;
    ALTER FUNCTION {{table}}_history_days() SET lock_timeout = '200ms';
    ALTER FUNCTION {{table}}_history_detach(date) SET lock_timeout = '200ms';
    ALTER FUNCTION {{table}}_history_drop() SET lock_timeout = '200ms';
    PERFORM {{table}}_history_days();
END
$$;
CREATE TRIGGER {{name}}_history_known BEFORE INSERT ON {{table}} FOR EACH ROW EXECUTE FUNCTION {{table}}_history_known();
