-- Remove what the broker has confirmed, if the rows are still ours: in place of mark_published.sql where a broker's rows are not kept.
-- Named parameters: ids (JSON), token.
DELETE FROM {{table}}
 WHERE id IN (SELECT value FROM json_each(:ids)) AND lock_token = :token AND status = 'processing'
