-- What it claims. The list is of ids. Plan: the rows by primary key.
UPDATE {{table}}
   SET room = NULL, status = 'processing', locked_by = 'by hand', lock_token = '0123456789abcdef', locked_until = UTC_TIMESTAMP(6) + INTERVAL 1 MINUTE
 WHERE id IN ({{list}})
