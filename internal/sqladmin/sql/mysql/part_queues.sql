-- The parts of {{name}}_queue that the statuses need. @statuses (a JSON list)
(SELECT item
   FROM JSON_TABLE('[0,1,2,3,4,5,6,7,8,9,10,11,99,100,101,102]', '$[*]' COLUMNS (item BIGINT PATH '$')) AS numbers
  WHERE item <= 100 AND (JSON_CONTAINS(@statuses, '"pending"') OR JSON_CONTAINS(@statuses, '"processing"') OR JSON_CONTAINS(@statuses, '"failed"'))
     OR item = 101 AND JSON_CONTAINS(@statuses, '"published"')
     OR item = 102 AND JSON_CONTAINS(@statuses, '"abandoned"')) AS queues
