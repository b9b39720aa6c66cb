-- Bring back gates whose time has come. Named parameters: broker, lane, now, limit. Their rows follow with set_parked.sql.
-- Plan: one range scan of {{name}}_waiting_wake, the gates by primary key.
UPDATE {{table}}_waiting
   SET wake_at = NULL
 WHERE gate_id IN (SELECT gate_id
                     FROM {{table}}_waiting INDEXED BY {{name}}_waiting_wake
                    WHERE target_broker = :broker AND lane = :lane AND wake_at <= :now
                    ORDER BY wake_at
                    LIMIT :limit)
RETURNING gate_id
