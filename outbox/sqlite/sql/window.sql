-- Choose what to claim from the head of the lane, keeping the order of each key. Runs inside BEGIN IMMEDIATE, which is
-- the lane's lock. Named parameters: broker, lane, window, limit, now.
-- Plan: one range scan of {{name}}_open; INDEXED BY, for "ORDER BY id" alone would tempt the planner to walk the table.
WITH win AS MATERIALIZED (
    -- The first open rows in order, held ones included: of each key it sees, it sees every earlier open row.
    SELECT id, ordering_key
         , CASE WHEN ordering_key IS NULL THEN id END AS loner -- a row without a key is a key of its own
         , status = 'processing' AS leased
         , crashes + (status = 'processing') AS suspicion
         , coalesce(locked_until, 0) <= :now AND coalesce(available_at, 0) <= :now AS ready
      FROM {{table}} INDEXED BY {{name}}_open
     WHERE target_broker = :broker AND lane = :lane AND finished_at IS NULL AND parked = 0
     ORDER BY id
     LIMIT :window
), free AS (
    -- Without the followers of a row that must wait, and without keys that somebody else has in hand.
    SELECT id, lowest, highest
      FROM (SELECT id
                 , min(ready) OVER so_far AS clear
                 , max(leased AND NOT ready) OVER whole AS in_hand
                 , min(suspicion) OVER so_far AS lowest
                 , max(suspicion) OVER so_far AS highest
              FROM win
            WINDOW so_far AS (PARTITION BY ordering_key, loner ORDER BY id ROWS UNBOUNDED PRECEDING)
                 , whole AS (PARTITION BY ordering_key, loner))
     WHERE clear AND NOT in_hand
), lead AS (
    -- Rows whose lease ran out are claimed apart from the others, and fewer at a time after each crash, until the one
    -- that kills its process stands alone.
    SELECT lowest AS suspicion FROM free ORDER BY id LIMIT 1
), chosen AS (
    SELECT id
      FROM free
     WHERE lowest = (SELECT suspicion FROM lead) AND highest = (SELECT suspicion FROM lead)
     ORDER BY id
     LIMIT coalesce((SELECT max(1, :limit >> min(suspicion, 30)) FROM lead), 0)
)
SELECT (SELECT count(*) FROM win), coalesce((SELECT json_group_array(id) FROM chosen), '[]')
