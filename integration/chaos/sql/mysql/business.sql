-- The tables of the application, and the truth about what it has committed: a row of facts for each event.
CREATE TABLE accounts (
    id      varchar(64) NOT NULL PRIMARY KEY,
    seq     bigint      NOT NULL DEFAULT 0,
    touched bigint      NOT NULL DEFAULT 0
);

-- No two transactions have the same place in an account's sequence.
CREATE TABLE facts (
    tx        varchar(64) NOT NULL,
    n         integer     NOT NULL,
    account   varchar(64) NOT NULL,
    seq       bigint      NOT NULL,
    published boolean     NOT NULL,
    sequenced varchar(64) AS (NULLIF(account, '')) STORED,
    PRIMARY KEY (tx, n),
    UNIQUE INDEX facts_sequence (sequenced, seq)
);

-- What consumers make of the events, each with the inbox: their number and the sum of their places in the sequence, by account, the highest
-- of these places, and how many events came after a higher one.
CREATE TABLE projections (
    consumer varchar(64) NOT NULL,
    account  varchar(64) NOT NULL,
    events   bigint      NOT NULL,
    total    bigint      NOT NULL,
    latest   bigint      NOT NULL,
    behind   bigint      NOT NULL,
    PRIMARY KEY (consumer, account)
);
