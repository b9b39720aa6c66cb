-- Mark abandoned rows as seen by an operator: their last_error begins with the mark from then on. One that is no JSON object is kept as the
-- message. Runs under the shards' locks, which pick.sql has added to. @ids (a JSON list)
-- Plan: the rows by primary key.
{{giving way}} UPDATE {{ids @ids}} AS picked
 STRAIGHT_JOIN {{table}} AS m FORCE INDEX (PRIMARY) ON m.id = picked.item
   SET m.last_error = CASE WHEN LEFT(m.last_error, 21) = '{"acknowledged":true,' THEN m.last_error
                           WHEN LEFT(m.last_error, 2) = '{"' THEN CONCAT('{"acknowledged":true,', SUBSTRING(m.last_error, 2))
                           ELSE CONCAT('{"acknowledged":true,"class":"","message":', JSON_QUOTE(LEFT(COALESCE(m.last_error, ''), 2000)), '}') END
