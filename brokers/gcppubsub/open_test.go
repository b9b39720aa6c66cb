package gcppubsub_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"cloud.google.com/go/iam/apiv1/iampb"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/gorm-fanout/fanout/brokers"
	"github.com/gorm-fanout/fanout/brokers/gcppubsub"
)

func TestOpenRefusesProjects(t *testing.T) {
	t.Parallel()
	_, err := gcppubsub.Open(t.Context(), gcppubsub.Settings{Project: "", Endpoint: "localhost:1"})
	require.ErrorContains(t, err, "gcppubsub: open project")
	for _, name := range []string{"My Project", "acme/prod", "projects/acme", "ACME", "-acme"} {
		_, err = gcppubsub.Open(t.Context(), gcppubsub.Settings{Project: name, Endpoint: "localhost:1"})
		require.ErrorContains(t, err, "this is not the id of a project", name)
	}
	for _, name := range []string{"acme-prod-123", "example.com:acme", "123456789012"} {
		b, err := gcppubsub.Open(t.Context(), gcppubsub.Settings{Project: name, Endpoint: "localhost:1"})
		require.NoError(t, err, name)
		require.NoError(t, b.Close(t.Context()))
	}
}

// PUBSUB_EMULATOR_HOST goes before an endpoint that a configuration pins, and gives way to an
// emulator of the broker's own.
func TestEmulatorHost(t *testing.T) {
	s := newServer(t)
	for name, c := range map[string]struct {
		variable string
		endpoint string
	}{
		"alone":              {s.addr, ""},
		"beside an endpoint": {s.addr, "europe-west1-pubsub.googleapis.com:443"},
		"beside another one": {"localhost:1", s.addr},
		"of the settings":    {"", s.addr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("PUBSUB_EMULATOR_HOST", c.variable)
			b, err := gcppubsub.Open(t.Context(), gcppubsub.Settings{Project: "demo", Endpoint: c.endpoint, CreateDestinations: true})
			require.NoError(t, err)
			require.NoError(t, b.Ping(t.Context()))
			assert.Equal(t, map[string]int{"": 3}, verdicts(b.Publish(t.Context(), many("orders", 3, 1))))
			require.NoError(t, b.Close(t.Context()))
		})
	}
}

// encrypted starts a server that speaks TLS alone, and returns what a client needs to trust it.
func encrypted(t *testing.T) (s *server, trust option.ClientOption) {
	t.Helper()
	issuer := httptest.NewTLSServer(nil) // for its certificate of 127.0.0.1
	t.Cleanup(issuer.Close)
	certificate := issuer.TLS.Certificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(issuer.Certificate())
	trust = option.WithGRPCDialOption(grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})))
	return newServer(t, grpc.Creds(credentials.NewServerTLSFromCert(&certificate))), trust
}

// credentialsFile writes Application Default Credentials and points the environment to them.
func credentialsFile(t *testing.T, content map[string]any) {
	t.Helper()
	text, err := json.Marshal(content)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
}

// Credentials that cannot be had are the broker's trouble, not the messages'.
func TestCredentialsOutOfReach(t *testing.T) {
	s, trust := encrypted(t)
	s.createTopic(t, "orders")
	credentialsFile(t, map[string]any{
		"type": "external_account", "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
		"subject_token_type": "urn:ietf:params:oauth:token-type:jwt", "token_url": "https://sts.googleapis.com/v1/token",
		"credential_source": map[string]any{"file": filepath.Join(t.TempDir(), "missing")},
	})
	b, err := gcppubsub.Open(t.Context(), gcppubsub.Settings{Project: project, Client: []option.ClientOption{option.WithEndpoint(s.addr), trust, option.WithTelemetryDisabled()}})
	require.NoError(t, err)
	defer func() { assert.NoError(t, b.Close(context.Background())) }()
	result := b.Publish(t.Context(), many("orders", 1, 1))[0]
	assert.Equal(t, "unavailable broker", verdict(result))
	require.ErrorContains(t, result.Err, "check the credentials")
	assert.Equal(t, codes.Unauthenticated, status.Code(result.Err))
	require.ErrorContains(t, b.Ping(t.Context()), "check the credentials")
}

// Ping needs no permission and no topic; whatever else is wrong it says.
func TestPing(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t)
	disabled, err := status.New(codes.PermissionDenied, "injected").WithDetails(&errdetails.ErrorInfo{Reason: "SERVICE_DISABLED"})
	require.NoError(t, err)
	for _, c := range []struct {
		answer error
		says   string // "" = all is well
	}{
		{nil, ""},
		{status.Error(codes.NotFound, "Resource not found (resource=fanout-ping)."), ""},
		{status.Error(codes.PermissionDenied, "User not authorized to perform this action."), ""},
		{status.Error(codes.NotFound, "Requested project not found or user does not have access to it (project=acme)."), "check the project's id"},
		{disabled.Err(), "enable the Pub/Sub API"},
		{status.Error(codes.FailedPrecondition, "injected"), "injected"},
		{status.Error(codes.Unauthenticated, "injected"), "check the credentials"},
		{status.Error(codes.Unavailable, "injected"), "check the network"},
		{status.Error(codes.ResourceExhausted, "injected"), "quota"},
		{status.Error(codes.Unimplemented, "injected"), "this is not Pub/Sub"},
		{status.Error(codes.Internal, "injected"), "injected"},
		{status.Error(codes.InvalidArgument, "injected"), "injected"},
	} {
		s.looks(c.answer)
		err := b.Ping(t.Context())
		if c.says == "" {
			require.NoError(t, err, "%v", c.answer)
			continue
		}
		require.ErrorContains(t, err, c.says)
		require.ErrorContains(t, err, `gcppubsub: ping project "acme"`)
		assert.Equal(t, "unavailable broker", verdict(brokers.Result{Err: err}))
	}

	s.looks(nil)
	_, err = s.fake.GServer.CreateTopic(t.Context(), &pubsubpb.Topic{Name: fullName("fanout-ping")})
	require.NoError(t, err)
	require.NoError(t, b.Ping(t.Context()))
	assert.Zero(t, s.requests.Load(), "nothing is published")
}

// TestIamPermissions answers what a caller may do on a topic, as Google's front does; the fake does
// not.
func (s *server) TestIamPermissions(_ context.Context, r *iampb.TestIamPermissionsRequest) (*iampb.TestIamPermissionsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grants == nil {
		return nil, status.Error(codes.Unimplemented, "unknown service google.iam.v1.IAMPolicy")
	}
	return &iampb.TestIamPermissionsResponse{Permissions: s.grants[r.GetResource()]}, nil // empty where there is no such topic, too
}

// TestCheckDestination: what a topic answers before anything is published to it. A publisher's role
// sees no topic, but its own permissions.
func TestCheckDestination(t *testing.T) {
	t.Parallel()
	const there, readable, missing = "ordering::order", "ordering::cart", "ordering::missing"
	denied := status.Error(codes.PermissionDenied, "User not authorized to perform this action.")
	for name, c := range map[string]struct {
		destination string
		emulator    bool // knows no permissions
		look        error
		settings    gcppubsub.Settings
		says        string // "" = nothing speaks against it
		verdict     string
	}{
		"there":                            {destination: there},
		"there, publisher's role":          {destination: there, look: denied},
		"there, emulator":                  {destination: there, emulator: true},
		"may be looked at only":            {destination: readable, says: "roles/pubsub.publisher", verdict: "unavailable destination"},
		"missing":                          {destination: missing, says: "create the topic", verdict: "unavailable destination"},
		"missing, emulator":                {destination: missing, emulator: true, says: "create the topic", verdict: "unavailable destination"},
		"missing, publisher's role":        {destination: missing, look: denied, says: "the topic is missing, or", verdict: "unavailable destination"},
		"missing, made by the first":       {destination: missing, emulator: true, settings: gcppubsub.Settings{CreateDestinations: true}},
		"no legal topic":                   {destination: "hr", says: "Settings.Topic", verdict: "unavailable destination"},
		"server that cannot be asked":      {destination: there, look: status.Error(codes.Unauthenticated, "injected"), says: "check the credentials", verdict: "unavailable broker"},
		"not to be told, publisher's role": {destination: there, emulator: true, look: denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			if !c.emulator {
				s.grant(fullName("ordering.order"), "pubsub.topics.publish")
			}
			s.createTopic(t, "ordering.order")
			s.createTopic(t, "ordering.cart")
			s.looks(c.look)
			err := s.open(t, c.settings).CheckDestination(t.Context(), c.destination)
			assert.Zero(t, s.requests.Load(), "nothing is published")
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, c.verdict, verdict(brokers.Result{Err: err}))
		})
	}
}
