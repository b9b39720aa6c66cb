-- Bring back gates whose time has come. Runs under the lane's lock, before a claim. $1 broker, $2 lane, $3 limit
-- Plan: one range scan of {{name}}_waiting_wake, the rows by primary key.
WITH due AS MATERIALIZED (
    SELECT ctid AS tid, gate_message_id, ordering_key
      FROM {{table}}_waiting
     WHERE target_broker = $1 AND lane = $2 AND wake_at <= statement_timestamp()
       AND current_setting('fanout.lane') = 'held'
     ORDER BY wake_at
     LIMIT $3
), back AS (
    -- No index serves this comparison of the broker: one that does would be as good to a planner that knows of no rows.
    UPDATE {{table}}
       SET parked = false
     WHERE message_id = ANY (ARRAY(SELECT gate_message_id FROM due)) AND target_broker || '' = $1 AND parked
    RETURNING id
), reopened AS (
    INSERT INTO {{table}}_lanes AS l (target_broker, lane, reopened)
    SELECT $1, $2 % 4, 1 WHERE EXISTS (SELECT FROM due)
        ON CONFLICT (target_broker, lane) DO UPDATE SET reopened = l.reopened + 1
), gates AS (
    UPDATE {{table}}_waiting SET wake_at = NULL WHERE ctid = ANY (ARRAY(SELECT tid FROM due WHERE ordering_key IS NOT NULL))
), gone AS (
    DELETE FROM {{table}}_waiting WHERE ctid = ANY (ARRAY(SELECT tid FROM due WHERE ordering_key IS NULL))
)
SELECT set_config('fanout.own', (EXISTS (SELECT FROM due))::int::text, true)
     , set_config('fanout.from', coalesce((SELECT min(id) FROM back)::text, ''), true)
