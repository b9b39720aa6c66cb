-- What the shop's own tables say, for the projections to agree with. No parameters; one pass over the orders.
SELECT
  count(*) AS orders_placed,
  coalesce(sum(total_cents), 0) AS revenue_cents,
  coalesce(sum(status = 'shipped'), 0) AS orders_shipped,
  coalesce(sum(quantity), 0) AS stock_reserved
FROM orders
