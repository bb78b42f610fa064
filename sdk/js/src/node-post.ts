// A POST with certificates. Node only; the `browser` field of package.json leaves it out.

import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';

import type { TlsOptions } from './transport.js';

export function nodePost(
  url: string,
  headers: Record<string, string>,
  body: string,
  tls: TlsOptions,
): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = url.startsWith('https:') ? httpsRequest : httpRequest;
    const sent = request(url, { method: 'POST', headers, ...tls }, (response) => {
      response.setEncoding('utf8');
      let text = '';
      response.on('data', (piece: string) => {
        text += piece;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      response.on('error', reject);
    });
    sent.on('error', reject);
    sent.end(body);
  });
}
