-- Entries of the record, newest first. @before an id, @limit
-- It does not wait for locks: an entry that another transaction is writing is passed over.
-- Plan: one range scan of {{name}}_audit_pkey, backwards, that ends after @limit rows.
SELECT TOP (@limit) id AS fanout_entry
     , actor
     , via
     , action
     , broker
     , filter
     , reason
     , row_count
     , started_at
     , ended_at
     , failure
  FROM {{table}}_audit WITH (FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
 WHERE id < @before
 ORDER BY id DESC;
