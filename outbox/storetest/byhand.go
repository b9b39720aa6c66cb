package storetest

// What an operator does in plain SQL, one row at a time and with no claim under way. It is what outbox.Operator describes.

// requeueByHand makes a row pending again. Where its key has a gate, and the row is it or stands before it, the row becomes
// the gate; but a key that waits for an operator waits on, unless this is the row.
func (t *table) requeueByHand(id int) {
	t.Helper()
	t.exec("DELETE FROM {t}_waiting WHERE gate_id = ? AND ordering_key IS NULL", id)
	t.exec(`UPDATE {t}_waiting
	           SET gate_message_id = (SELECT message_id FROM {t} WHERE id = ?), lane = (SELECT lane FROM {t} WHERE id = ?)
	             , gate_id = ?, wake_at = NULL, reason = 'retry'
	         WHERE target_broker = ? AND ordering_key = (SELECT ordering_key FROM {t} WHERE id = ?)
	           AND gate_id >= ? AND (reason <> 'abandoned' OR wake_at IS NULL OR gate_id = ?)`, id, id, id, broker, id, id, id)
	t.exec(`UPDATE {t}
	           SET status = 'pending', attempts = 0, crashes = 0, isolated = `+t.sql.no+`, parked = `+t.sql.no+`
	             , published_at = NULL, finished_at = NULL, available_at = NULL, locked_until = NULL, locked_by = NULL, lock_token = NULL
	         WHERE id = ?`, id)
	t.exec(`UPDATE {t} SET parked = `+t.sql.yes+`
	         WHERE id = ? AND EXISTS (SELECT 1 FROM {t}_waiting AS w
	                                   WHERE w.target_broker = {t}.target_broker AND w.ordering_key = {t}.ordering_key AND w.gate_id < {t}.id)`, id)
}

// dropByHand abandons a row. Its key goes on.
func (t *table) dropByHand(id int) {
	t.Helper()
	t.exec("DELETE FROM {t}_waiting WHERE gate_id = ? AND ordering_key IS NULL", id)
	t.exec("UPDATE {t}_waiting SET wake_at = NULL, reason = 'retry' WHERE gate_id = ?", id)
	t.exec(`UPDATE {t}
	           SET status = 'abandoned', finished_at = created_at, isolated = `+t.sql.no+`, parked = `+t.sql.no+`
	             , available_at = NULL, locked_until = NULL, locked_by = NULL, lock_token = NULL
	         WHERE id = ?`, id)
}

// releaseByHand lets a key go on that waits for an operator.
func (t *table) releaseByHand(key string) {
	t.Helper()
	t.exec("UPDATE {t}_waiting SET wake_at = NULL, reason = 'retry' WHERE target_broker = ? AND ordering_key = ? AND reason = 'abandoned'", broker, key)
}
