-- The tables of the application, and the truth about what it has committed: a row of facts for each event.
CREATE TABLE accounts (
    id      nvarchar(64) NOT NULL PRIMARY KEY,
    seq     bigint       NOT NULL DEFAULT 0,
    touched bigint       NOT NULL DEFAULT 0
);

CREATE TABLE facts (
    tx        nvarchar(64) NOT NULL,
    n         int          NOT NULL,
    account   nvarchar(64) NOT NULL,
    seq       bigint       NOT NULL,
    published bit          NOT NULL,
    PRIMARY KEY (tx, n)
);

-- No two transactions have the same place in an account's sequence.
CREATE UNIQUE INDEX facts_sequence ON facts (account, seq) WHERE account <> '';

-- What consumers make of the events, each with the inbox: their number and the sum of their places in the sequence, by account, the highest
-- of these places, and how many events came after a higher one.
CREATE TABLE projections (
    consumer nvarchar(64) NOT NULL,
    account  nvarchar(64) NOT NULL,
    events   bigint       NOT NULL,
    total    bigint       NOT NULL,
    latest   bigint       NOT NULL,
    behind   bigint       NOT NULL,
    PRIMARY KEY (consumer, account)
);
