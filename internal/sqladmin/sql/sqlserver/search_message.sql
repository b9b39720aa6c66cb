-- The rows of a message. @message_id, @broker (N'': all), @after_id, @limit. A uniqueidentifier is ordered by its last bytes, so that messages of
-- one event with ids of their own are not found together.
-- Plan: a seek of {{name}}_once.
SET LOCK_TIMEOUT 1000;
{{include part_search}} WITH (INDEX({{name}}_once), FORCESEEK, ROWLOCK)
 WHERE m.message_id = CONVERT(uniqueidentifier, @message_id)
{{include part_search_page}}
