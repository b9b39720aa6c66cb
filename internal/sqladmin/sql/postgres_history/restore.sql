-- Bring rows of the history back to the outbox. Runs under the shards' locks. @message_ids, @brokers
SELECT {{table}}_history_restore(@message_ids::text[]::uuid[], @brokers::text[])
