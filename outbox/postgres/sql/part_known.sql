-- What is known of a shard as of this statement's snapshot: its version, the session, the id below which nothing is open, whether the broker has
-- blocks or the shard scheduled rows that are due. $1 broker, $2 shard, $5 to $9: see lowwater.go
    SELECT now.version
         , set_config('fanout.session', now.session::text, false)::bigint AS session -- for as long as it lasts
         , CASE WHEN now.version = $6 AND now.session = ANY ($7::bigint[])
                THEN CASE WHEN cardinality($8::bigint[]) > 0
                           AND NOT EXISTS (SELECT FROM unnest($8::bigint[]) AS writer (number) WHERE pg_visible_in_snapshot(number::text::xid8, pg_current_snapshot()))
                          THEN $9::bigint ELSE $5 END
                ELSE -9223372036854775808 END AS floor
           -- (In the order of an index, which a planner that knows of no rows has no other reason to choose.)
         , EXISTS (SELECT FROM (SELECT FROM {{table}}_key_blocks WHERE target_broker = $1 ORDER BY shard LIMIT 1) AS block)
           OR EXISTS (SELECT FROM (SELECT FROM {{table}} WHERE target_broker = $1 AND shard = $2 AND available_at <= statement_timestamp() ORDER BY target_broker, shard, available_at LIMIT 1) AS due) AS blocked
      FROM (SELECT coalesce((SELECT version FROM {{table}}_shards WHERE target_broker = $1 AND shard = $2 % 4), 0) AS version
                 , coalesce(nullif(current_setting('fanout.session', true), '')::bigint
                         , (SELECT min(met) FROM unnest($7::bigint[]) AS met WHERE met IN ({{include part_living}})), {{include part_own_session}}) AS session) AS now
