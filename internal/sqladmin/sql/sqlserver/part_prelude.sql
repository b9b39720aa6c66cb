-- How every batch begins. XACT_ABORT: whatever goes wrong, also a client that gives up, leaves no transaction behind.
-- LOCK_TIMEOUT, in milliseconds: a forgotten transaction must not stop a shard forever; the store repeats what
-- ends in error 1222. DEADLOCK_PRIORITY: of two that wait for each other the server breaks off this one, and not the UPDATE of another session that cannot
-- know that it is to be repeated; both settings end with the batch. The isolation level is set because a pool that others use, too, may hand over another one.
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET LOCK_TIMEOUT 5000;
SET DEADLOCK_PRIORITY LOW;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @now datetime2(6), @found_version bigint, @resource nvarchar(255), @granted int;
