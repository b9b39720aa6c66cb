-- Adds to the projection of a consumer: no more than a sum, so an event that is handled twice, or never, shows in it.
-- Parameters: consumer, then what is added to each column. One row, by the primary key.
INSERT INTO sums (consumer, orders_placed, revenue_cents, orders_shipped, stock_reserved)
VALUES (?, ?, ?, ?, ?)
ON CONFLICT (consumer) DO UPDATE SET
  orders_placed = orders_placed + excluded.orders_placed,
  revenue_cents = revenue_cents + excluded.revenue_cents,
  orders_shipped = orders_shipped + excluded.orders_shipped,
  stock_reserved = stock_reserved + excluded.stock_reserved
