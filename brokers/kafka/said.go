package kafka

import (
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A partition is one of a topic.
type partition struct {
	topic  string
	number int32
}

// said keeps the last error code that a server gave for each partition in a round. The client repeats
// what has one, and ends with an error of its own (of too many retries, or of the end of the round) in
// which the code is lost; no hook has it, and so it is read from the client's log. TestLastCodeIsKept
// notices where a later version of the client logs otherwise.
type said struct {
	closely atomic.Bool // the round is repeated, or takes long: read answers that are repeated

	mu   sync.Mutex
	last map[partition]*kerr.Error
}

// answered is the client's account of an answer, "topic[3{retrying@-1,2(NAME: text)}]", which it logs
// at its level for debugging.
const answered = "produced"

var answer = regexp.MustCompile(`([\w.-]+)\[|(\d+)\{retrying@[^(}]*\(([A-Z_]+)`)

var codesByName = func() map[string]*kerr.Error {
	names := map[string]*kerr.Error{}
	for code := kerr.UnknownServerError.Code; code < 1000; code++ {
		if err := kerr.TypedErrorForCode(code); err != nil {
			names[err.Message] = err
		}
	}
	return names
}()

func (s *said) begin() {
	s.closely.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

// of is the last code of a partition, nil where there is none.
func (s *said) of(of partition) *kerr.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[of]
}

// unconfirmed reports whether the server has said of a partition's batch that it is there, but not on
// enough replicas.
func (s *said) unconfirmed(of partition) bool {
	last := s.of(of)
	return last != nil && (last.Code == kerr.RequestTimedOut.Code || last.Code == kerr.NotEnoughReplicasAfterAppend.Code)
}

func (s *said) note(of partition, err *kerr.Error) {
	if err == nil || rules[err.Code].advice == loginFail { // which is said of a connection
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[partition]*kerr.Error{}
	}
	s.last[of] = err
}

// Level implements [kgo.Logger].
func (s *said) Level() kgo.LogLevel {
	if s.closely.Load() {
		return kgo.LogLevelDebug
	}
	return kgo.LogLevelInfo
}

// Log implements [kgo.Logger].
func (s *said) Log(_ kgo.LogLevel, message string, pairs ...any) {
	values := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if name, is := pairs[i].(string); is {
			values[name] = pairs[i+1]
		}
	}
	if text, is := values["to"].(string); is && message == answered {
		topic := ""
		for _, found := range answer.FindAllStringSubmatch(text, -1) {
			if found[1] != "" {
				topic = found[1]
			} else if number, err := strconv.ParseInt(found[2], 10, 32); err == nil {
				s.note(partition{topic, int32(number)}, codesByName[found[3]])
			}
		}
		return
	}
	topic, named := values["topic"].(string)
	number, numbered := values["partition"].(int32)
	if err, is := values["err"].(*kerr.Error); is && named && numbered { // one for which it begins with a new number
		s.note(partition{topic, number}, err)
	}
}
