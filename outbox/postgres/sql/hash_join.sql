-- The rows of a settlement are joined by hash: with stale statistics the planner expects one open row, and a nested loop
-- over two lists of thousands would keep the lane's lock for seconds.
SET LOCAL enable_nestloop = off
