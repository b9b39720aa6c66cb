-- The business table of the latency scenario.
CREATE TABLE latency_orders (
    id   bigint NOT NULL PRIMARY KEY,
    note text   NOT NULL
)
