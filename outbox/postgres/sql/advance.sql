-- Move on the gates that are back in the claim's way. One whose message is finished lets a bounded number of followers
-- through, the last of which is the next gate; when none is left behind, the key is free. One that must wait again leaves.
-- Runs under the lane's lock, before a claim. $1 broker, $2 lane, $3 gates, $4 followers of each
-- Plan: one range scan of {{name}}_waiting_wake, the gates' rows by primary key, per gate two range scans of {{name}}_parked.
WITH back AS MATERIALIZED (
    -- The order is that of the index: without it the planner may read all gates of the broker by another one.
    SELECT ctid AS tid, target_broker, ordering_key, gate_id, gate_message_id
      FROM {{table}}_waiting
     WHERE target_broker = $1 AND lane = $2 AND wake_at IS NULL
       AND current_setting('fanout.lane') = 'held'
     ORDER BY target_broker, lane, wake_at
     LIMIT 500
), gate AS MATERIALIZED (
    SELECT w.tid, w.ordering_key, w.gate_id
         , m.message_id IS NULL OR m.finished_at IS NOT NULL AS done
         , m.ctid AS row
         , CASE WHEN m.status IN ('pending', 'failed') THEN greatest(m.locked_until, m.available_at) END AS rests_until
      FROM back AS w
      LEFT JOIN {{table}} AS m ON m.message_id = w.gate_message_id AND m.target_broker = w.target_broker
), done AS MATERIALIZED (
    -- Followers stand behind their gate. While there are enough of them the search begins there, past all that was let through
    -- before, of which the index keeps entries for as long as vacuum is held back. The last search looks at the whole key.
    SELECT tid, ordering_key, gate_id
         , CASE WHEN EXISTS (SELECT FROM (SELECT FROM {{table}} AS m
                                           WHERE m.target_broker = $1 AND m.ordering_key = d.ordering_key AND m.parked AND m.finished_at IS NULL
                                             AND m.id > d.gate_id
                                           ORDER BY m.id
                                          OFFSET $4 - 1
                                           LIMIT 1) AS last)
                THEN gate_id ELSE -9223372036854775808 END AS after
      FROM (SELECT tid, ordering_key, gate_id FROM gate WHERE done ORDER BY gate_id LIMIT $3) AS d
), chunk AS MATERIALIZED (
    SELECT done.tid, follower.row, follower.id, follower.message_id, follower.lane
         , row_number() OVER (PARTITION BY done.tid ORDER BY follower.id) AS place
      FROM done
     CROSS JOIN LATERAL (SELECT ctid AS row, id, message_id, lane
                           FROM {{table}} AS m
                          WHERE m.target_broker = $1 AND m.ordering_key = done.ordering_key AND m.parked AND m.finished_at IS NULL
                            AND m.id > done.after
                          ORDER BY m.id
                          LIMIT $4) AS follower
), through AS (
    UPDATE {{table}} SET parked = false WHERE ctid = ANY (ARRAY(SELECT row FROM chunk))
), loners AS (
    -- A follower may have waited alone, before order was switched on. It does so no more.
    DELETE FROM {{table}}_waiting
     WHERE gate_message_id = ANY (ARRAY(SELECT message_id FROM chunk)) AND target_broker || '' = $1 AND ordering_key IS NULL
    RETURNING gate_id
), reopened AS (
    INSERT INTO {{table}}_lanes AS l (target_broker, lane, reopened)
    SELECT $1, $2 % 4, 1 WHERE EXISTS (SELECT FROM chunk)
        ON CONFLICT (target_broker, lane) DO UPDATE SET reopened = l.reopened + 1
), moved AS (
    UPDATE {{table}}_waiting AS w
       SET gate_id = chunk.id, gate_message_id = chunk.message_id, lane = chunk.lane
      FROM chunk
     WHERE w.ctid = chunk.tid AND chunk.place = $4
       AND (SELECT count(*) FROM loners) >= 0 -- they go first
), rests AS (
    UPDATE {{table}} SET parked = true WHERE ctid = ANY (ARRAY(SELECT row FROM gate WHERE rests_until > statement_timestamp()))
), resting AS (
    UPDATE {{table}}_waiting AS w
       SET wake_at = gate.rests_until
      FROM gate
     WHERE w.ctid = gate.tid AND gate.rests_until > statement_timestamp()
), gone AS (
    DELETE FROM {{table}}_waiting
     WHERE ctid = ANY (ARRAY(SELECT tid FROM done EXCEPT SELECT tid FROM chunk WHERE place = $4))
)
SELECT set_config('fanout.own', (current_setting('fanout.own')::bigint + (EXISTS (SELECT FROM chunk))::int)::text, true)
     , set_config('fanout.from', coalesce(least(nullif(current_setting('fanout.from'), '')::bigint, (SELECT min(id) FROM chunk))::text, ''), true)
