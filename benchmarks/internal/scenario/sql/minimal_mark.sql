-- Mark rows of the minimal table. $1 their places since the claim
-- Plan: one TID scan.
UPDATE {{table}}_minimal
   SET status = 2, locked_until = NULL, published_at = now()
 WHERE ctid = ANY ($1::tid[]) AND status = 1
