-- Bring back gates whose time has come. A part of a claim's transaction, under the lane's lock. @broker, @lane
-- Plan: one range scan of {{name}}_waiting_wake, one seek of {{name}}_waiting_pkey and of {{name}}_pkey per gate.
DECLARE @due TABLE (gate_id bigint NOT NULL PRIMARY KEY, alone bit NOT NULL);
INSERT INTO @due (gate_id, alone)
SELECT TOP (500) gate_id, CASE WHEN ordering_key IS NULL THEN 1 ELSE 0 END
  FROM {{table}}_waiting WITH (INDEX({{name}}_waiting_wake))
 WHERE target_broker = @broker AND lane = @lane AND wake_at <= @now
 ORDER BY wake_at;
IF @@ROWCOUNT > 0
BEGIN
    UPDATE m
       SET parked = 0
      FROM @due AS d
     INNER JOIN {{table}} AS m WITH (ROWLOCK, FORCESEEK) ON m.id = d.gate_id
     WHERE m.parked = 1;
    UPDATE w
       SET wake_at = NULL
      FROM @due AS d
     INNER JOIN {{table}}_waiting AS w WITH (ROWLOCK, FORCESEEK) ON w.gate_id = d.gate_id
     WHERE d.alone = 0;
    DELETE w
      FROM @due AS d
     INNER JOIN {{table}}_waiting AS w WITH (ROWLOCK, FORCESEEK) ON w.gate_id = d.gate_id
     WHERE d.alone = 1;
END;
