// A server with tokens, and with TLS under an authority made for the test.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { TlsOptions } from '../src/index.js';

const TOKENS = `
[[auth.tokens]]
token = "worker-secret"
agent = "worker"
scopes = ["publish", "subscribe"]

[[auth.tokens]]
token = "reader-secret"
agent = "reader"
scopes = ["subscribe"]

[[auth.tokens]]
token = "asker-secret"
agent = "asker"
scopes = ["os"]

[[auth.tokens]]
token = "root-secret"
agent = "root"
scopes = ["admin"]
`;

const CERTIFICATES = `
[[auth.certificates]]
name = "billing.example"
agent = "billing"
scopes = ["publish", "subscribe", "os", "admin"]
`;

export class Secrets {
  readonly folder = mkdtempSync(join(tmpdir(), 'millrace-sdk-secrets-'));
  readonly config = join(this.folder, 'millrace.toml');
  readonly authority = join(this.folder, 'ca.pem');

  constructor() {
    writeFileSync(this.config, TOKENS);
  }

  /** A certificate for 127.0.0.1, and the flags that make a server show it. */
  tls(): string[] {
    const file = (name: string): string => join(this.folder, name);
    const openssl = (...args: string[]): void => {
      execFileSync('openssl', args, { cwd: this.folder, stdio: 'pipe' });
    };
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
    openssl('req', '-x509', ...key, '-keyout', 'ca.key', '-out', 'ca.pem', '-subj', '/CN=test authority', '-days', '2');
    openssl('req', ...key, '-keyout', 'key.pem', '-out', 'request.pem', '-subj', '/CN=127.0.0.1');
    writeFileSync(file('names'), 'subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n');
    openssl(
      ...['x509', '-req', '-in', 'request.pem', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial'],
      ...['-extfile', 'names', '-days', '2', '-out', 'cert.pem'],
    );
    return ['--tls-cert', file('cert.pem'), '--tls-key', file('key.pem')];
  }

  /** Flags of a server that also believes client certificates, one of which is `billing`'s. After `tls()`. */
  clientCertificates(): string[] {
    writeFileSync(this.config, `${TOKENS}${CERTIFICATES}`);
    const openssl = (...args: string[]): void => {
      execFileSync('openssl', args, { cwd: this.folder, stdio: 'pipe' });
    };
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
    openssl('req', ...key, '-keyout', 'client.key', '-out', 'client-request.pem', '-subj', '/CN=billing');
    const names = 'subjectAltName=DNS:billing.example\nbasicConstraints=CA:FALSE\nextendedKeyUsage=clientAuth\n';
    writeFileSync(join(this.folder, 'client-names'), names);
    openssl(
      ...['x509', '-req', '-in', 'client-request.pem', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial'],
      ...['-extfile', 'client-names', '-days', '2', '-out', 'client.pem'],
    );
    return ['--tls-client-ca', this.authority];
  }

  /** What `billing` shows. */
  get billing(): TlsOptions {
    const text = (name: string): string => readFileSync(join(this.folder, name), 'utf8');
    return { cert: text('client.pem'), key: text('client.key'), ca: text('ca.pem') };
  }

  remove(): void {
    rmSync(this.folder, { recursive: true });
  }
}
