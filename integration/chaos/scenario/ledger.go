package scenario

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Ledger is the file in which a process records what it knows. Lines survive a kill of the process;
// only the last one can be torn. It is safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	file *os.File
}

// OpenLedger opens a ledger for appending, and creates it where there is none.
func OpenLedger(path string) (*Ledger, error) {
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	l := &Ledger{file: file}
	if _, err := file.WriteString("\n"); err != nil { // ends a torn line
		return nil, errors.Join(err, file.Close())
	}
	return l, nil
}

// Write adds lines, in one write.
func (l *Ledger) Write(lines ...Line) error {
	var text bytes.Buffer
	for i := range lines {
		line, err := json.Marshal(&lines[i])
		if err != nil {
			return err
		}
		text.Write(append(line, '\n'))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.file.Write(text.Bytes())
	return err
}

// Close closes the file.
func (l *Ledger) Close() error { return l.file.Close() }

// ReadLedger calls f with each line. A ledger that does not exist is empty; a torn line is skipped.
func ReadLedger(path string, f func(Line)) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line Line
		if json.Unmarshal(lines.Bytes(), &line) == nil {
			f(line)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read ledger %s: %w", path, err)
	}
	return nil
}
