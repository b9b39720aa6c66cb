-- Mark rows of the outbox table by hand. $1 their places since the claim
-- Plan: one TID scan.
UPDATE {{table}}
   SET status       = 'published'
     , published_at = now()
     , finished_at  = now()
     , attempts     = attempts + 1
     , locked_by    = NULL
     , lock_token   = NULL
     , locked_until = NULL
 WHERE ctid = ANY ($1::tid[]) AND status = 'processing' AND lock_token = '00000000-0000-0000-0000-000000000001'
