package webhook_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/webhook"
	"github.com/gorm-fanout/fanout/internal/testenv"
)

// What the endpoint has not processed, by its own word, is sent again; what it may have processed
// is not; and neither is it forever.
func TestNotProcessed(t *testing.T) {
	t.Parallel()
	testenv.NeedSeconds(t)
	for name, test := range map[string]struct {
		answers []answer // the last one stands for all that follow
		class   string
		sent    int           // 0 = some times
		timeout time.Duration // 0 = the default
	}{
		"GOAWAY":                   {[]answer{goAway, taken}, "", 2, 0},
		"several GOAWAYs":          {[]answer{goAway, goAway, goAway, taken}, "", 4, 0},
		"REFUSED_STREAM":           {[]answer{refuse, taken}, "", 2, 0},
		"the connection":           {[]answer{hangUp, taken}, "unavailable broker", 1, 0},
		"REFUSED_STREAM each time": {[]answer{refuse}, "unavailable broker", 0, 2 * time.Second},
		"GOAWAY each time":         {[]answer{goAway}, "unavailable broker", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startScripted(t, test.answers)
			b := s.open(t, webhook.Settings{RequestTimeout: test.timeout})
			results := b.Publish(t.Context(), []brokers.Message{numbered("x", "a", 1)})
			assert.Equal(t, []string{test.class}, classes(results), "%v", results[0].Err)
			if test.sent > 0 {
				assert.Equal(t, test.sent, s.requests(), "requests")
				return
			}
			assert.Less(t, s.requests(), 20)
			require.ErrorContains(t, results[0].Err, "the endpoint ends each connection or stream without processing the request (GOAWAY")
		})
	}
}

// An answer of the scripted endpoint is the frames that follow a request on a stream.
type answer func(stream uint32) []byte

func taken(stream uint32) []byte { return frame(frameHeaders, endStream|endHeaders, stream, statusOK) }

// goAway names 0 as the last stream: none was processed.
func goAway(uint32) []byte { return frame(frameGoAway, 0, 0, make([]byte, 8)...) }

func refuse(stream uint32) []byte { return frame(frameReset, 0, stream, 0, 0, 0, refusedStream) }

// hangUp is no frame, and the end of the connection.
func hangUp(uint32) []byte { return nil }

// What there is of HTTP/2 (RFC 9113) and of HPACK (RFC 7541, appendix A).
const (
	frameHeaders, frameReset, frameSettings, frameGoAway = 0x1, 0x3, 0x4, 0x7
	endStream, acknowledged, endHeaders                  = 0x1, 0x1, 0x4
	refusedStream                                        = 0x7
	statusOK                                             = 0x88
	preface                                              = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func frame(kind, flags byte, stream uint32, payload ...byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return append(binary.BigEndian.AppendUint32(append(head, flags), stream), payload...)
}

// scripted is an endpoint that speaks HTTP/2 frame by frame.
type scripted struct {
	*partner // whose certificate and secret it has

	listener net.Listener
	answers  []answer
	got      atomic.Int64
	serving  sync.WaitGroup
}

func startScripted(t *testing.T, answers []answer) *scripted {
	t.Helper()
	p := startPartner(t, true)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: p.server.TLS.Certificates, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12})
	require.NoError(t, err)
	s := &scripted{partner: p, listener: listener, answers: answers}
	ctx, cancel := context.WithCancel(context.Background())
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
				_ = s.speak(conn) // until either of them leaves
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		cancel()
		s.serving.Wait()
	})
	return s
}

func (s *scripted) open(t *testing.T, settings ...webhook.Settings) *webhook.Broker {
	t.Helper()
	b := s.connect(t, s.listener.Addr().String(), settings...)
	t.Cleanup(func() { closeBroker(t, b) })
	return b
}

func (s *scripted) requests() int { return int(s.got.Load()) }

// speak answers the requests of a connection until the client ends it.
func (s *scripted) speak(conn net.Conn) error {
	if _, err := io.ReadFull(conn, make([]byte, len(preface))); err != nil {
		return err
	}
	if _, err := conn.Write(frame(frameSettings, 0, 0)); err != nil {
		return err
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			return err
		}
		payload := binary.BigEndian.Uint32(append([]byte{0}, head[:3]...))
		if _, err := io.CopyN(io.Discard, conn, int64(payload)); err != nil {
			return err
		}
		kind, flags, stream := head[3], head[4], binary.BigEndian.Uint32(head[5:])
		said := frame(frameSettings, acknowledged, 0)
		switch {
		case kind == frameHeaders:
			n := int(s.got.Add(1))
			said = s.answers[min(n, len(s.answers))-1](stream)
			if said == nil {
				return nil
			}
		case kind != frameSettings || flags&acknowledged != 0:
			continue
		}
		if _, err := conn.Write(said); err != nil {
			return err
		}
	}
}
