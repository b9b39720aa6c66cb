-- Take what waits at the head of a lane out of the claim's way: rows in backoff or scheduled for later, and whatever stands
-- behind them in their key. Rows in somebody's hands stay: they are soon done. Runs under the lane's lock.
-- $1 broker, $2 lane, $3 how many open rows to look at, $4 unordered: every row waits alone,
-- $5 id below which nothing is open in the lane, $6 as of which count of reopenings
-- Plan: one range scan of {{name}}_open, gates by {{name}}_waiting_key, one sort by key, one TID scan for the update.
WITH known AS MATERIALIZED (
    -- Nothing is open below this id, see lowwater.go; unless rows have come back since that was learned.
    SELECT now.reopened
         , CASE WHEN now.reopened = $6 THEN $5 ELSE -9223372036854775808 END AS floor
      FROM (SELECT coalesce((SELECT reopened FROM {{table}}_lanes WHERE target_broker = $1 AND lane = $2 % 4), 0) AS reopened) AS now
), lane AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM (SELECT FROM {{table}}_waiting WHERE target_broker = $1 ORDER BY lane LIMIT 1) AS gate) AS gated
), win AS MATERIALIZED (
    SELECT m.ctid AS tid, m.id, m.message_id
         , CASE WHEN NOT $4::boolean THEN m.ordering_key END COLLATE "C" AS key
         , CASE WHEN m.ordering_key IS NULL OR $4 THEN m.id END AS loner
           -- No index holds a longer key. A CHECK refuses it; where that is gone, such a row stays in the way, and costs the others nothing.
         , coalesce(octet_length(m.ordering_key), 0) <= 512 AS fits
         , greatest(m.locked_until, m.available_at) AS until
         , m.status = 'processing' AS leased
         , m.available_at > statement_timestamp() AS scheduled
           -- The key's gate, where it has one.
         , CASE WHEN m.ordering_key IS NOT NULL AND NOT $4 AND (SELECT gated FROM lane)
                THEN (SELECT w.gate_id FROM {{table}}_waiting AS w WHERE w.ordering_key = m.ordering_key AND w.target_broker || '' = $1)
                END AS gate_id
      FROM {{table}} AS m
     WHERE m.target_broker = $1 AND m.lane = $2 AND m.finished_at IS NULL AND NOT m.parked AND m.id >= (SELECT floor FROM known)
     ORDER BY m.id
     LIMIT $3
), resting AS MATERIALIZED (
    -- The first row of each key that must wait becomes its gate, unless it has one.
    SELECT DISTINCT ON (key, loner) tid, id, message_id, key, loner, until, scheduled, gate_id
      FROM win
     WHERE NOT leased AND until > statement_timestamp() AND (gate_id IS NULL OR gate_id = id) AND fits
     ORDER BY key, loner, id
), gates AS (
    INSERT INTO {{table}}_waiting AS w (target_broker, lane, ordering_key, gate_id, gate_message_id, wake_at, reason)
    SELECT $1, $2, key, id, message_id, until, CASE WHEN scheduled THEN 'scheduled' ELSE 'retry' END FROM resting
        ON CONFLICT (gate_message_id, target_broker)
        DO UPDATE SET wake_at = excluded.wake_at, reason = excluded.reason, ordering_key = coalesce(excluded.ordering_key, w.ordering_key)
), behind AS (
    -- Behind a gate of before, or behind one of those above. Which of them are in somebody's hands, the update tests.
    SELECT win.tid
      FROM (SELECT tid, id, gate_id, fits
                 , min(id) FILTER (WHERE NOT leased AND until > statement_timestamp() AND (gate_id IS NULL OR gate_id = id))
                   OVER (PARTITION BY key, loner) AS first
              FROM win) AS win
     WHERE fits AND (win.id > win.gate_id OR win.id >= win.first)
)
UPDATE {{table}}
   SET parked = true
 WHERE ctid = ANY (ARRAY(SELECT tid FROM behind)) AND status IN ('pending', 'failed')
