package outbox

import "time"

// recoveredEvery bounds how often a processor tells of rows that others have left: they may be claimed many times until they pass.
const recoveredEvery = time.Minute

// tellRecovered says that somebody has died, or stood still, with claimed rows. Nobody else can: the dead do not log.
func (w *worker) tellRecovered(batch *Batch) {
	rows, crashes := 0, 0
	for i := range batch.Messages {
		if n := batch.Messages[i].Crashes; n > 0 {
			rows++
			crashes = max(crashes, n)
		}
	}
	now, last := time.Now().UnixNano(), w.recovered.Load()
	if rows == 0 || now-last < int64(recoveredEvery) || !w.recovered.CompareAndSwap(last, now) {
		return
	}
	w.log.Warn("rows come back from a lease that ran out: who had them died or stood still; they go again, under the same ids", "rows", rows, "crashes", crashes)
}
