import { isDeepStrictEqual } from 'node:util';
import { requestedByQuery, lookupAt, originForm } from '#api/public/lookup/routes';
import { lookupNameOf } from '#protocol/lookup-routes';
import { responseHead } from '#protocol/state/answers';
import { mayHoldToken } from '#api/public/http/answer';
import { overlayFormProblems } from '#policy/check';
import { preparse } from '#policy/decide';
import { API_KEY_PATTERN } from '#protocol/schemas/api-keys';
import { formatApiKey, parseApiKey } from '#runtime/crypto/api-key';
import {
  fromBase64,
  fromBase64Url,
  fromHex,
  fromUtf8Lossy,
  toBase64,
  toBase64Url,
  toHex,
  utf8,
} from '#protocol/bytes';
import {
  formatCheckpoint,
  parseCheckpoint,
  formatTlogProof,
  parseTlogProof,
} from '#protocol/checkpoint';
import { nobleSha256 } from '#protocol/hash';
import { formatVkey, openNote, parseVkey } from '#protocol/note';
import { formatTime, parseTime } from '#protocol/time';
import { nativeVerify } from '#runtime/crypto/node';
import { engineConfig, facadeConfig, publisherConfig } from '#runtime/config';
import { parsing, texts, vectors, must, type Target } from './target.js';
import { openCheckpoint } from '../fixtures/checkpoints.js';

const checkpoint = vectors<{ origin: string; text: string; vkey: string; note: string }>(
  'checkpoint',
);
const tlogProof = vectors<{ text: string }>('tlog-proof');
const ids = Object.values(vectors<Record<string, string>>('identifiers'));
const key = formatApiKey({ keyId: 'abcdefghij23', secret: new Uint8Array(32) });

/** A parser of text whose result can be formatted again. */
const roundTrip = <T>(
  name: string,
  seeds: readonly string[],
  parse: (text: string) => T,
  print: (value: T) => string,
): Target => ({
  name,
  seeds: texts(...seeds),
  run: parsing(
    (input) => {
      const text = fromUtf8Lossy(input);
      return { text, value: parse(text) };
    },
    ({ text, value }) => must(print(value) === text, 'a non-canonical encoding is accepted'),
  ),
});

const FORBID = 'forbid (principal, action, resource);';

const PATHS = ['proof', 'certificate', 'passport', 'trust', 'trust-asset', 'share', 'package'];

export const TEXT_TARGETS: readonly Target[] = [
  roundTrip('checkpoint', [checkpoint.text], parseCheckpoint, formatCheckpoint),
  roundTrip(
    'vkey',
    [checkpoint.vkey],
    (text) => parseVkey(text),
    ({ name, publicKey }) => formatVkey(nobleSha256, name, publicKey),
  ),
  roundTrip('tlog-proof', [tlogProof.text], parseTlogProof, formatTlogProof),
  roundTrip('base64', ['', 'AA==', 'AAA=', 'AAAA', '+/+/'], fromBase64, toBase64),
  roundTrip('base64url', ['', 'AA', 'AAA', 'AAAA', '-_-_'], fromBase64Url, toBase64Url),
  roundTrip('hex', ['', '00', 'ff'.repeat(32)], fromHex, toHex),
  roundTrip(
    'time',
    ['2026-11-20T17:29:00.123Z', '2028-02-29T00:00:00.000Z', '0001-01-01T00:00:00.000Z'],
    parseTime,
    formatTime,
  ),
  {
    name: 'note',
    seeds: texts(checkpoint.note, `${checkpoint.note}— other.example ${'A'.repeat(92)}\n`),
    run: parsing(
      (input) => openNote(fromUtf8Lossy(input), [checkpoint.vkey], nativeVerify),
      // Only the holder of the key can sign a text other than that of the checkpoint.
      ({ text }) => must(checkpoint.note.startsWith(`${text}\n`), 'an unsigned text'),
    ),
  },
  {
    name: 'checkpoint-note',
    seeds: texts(checkpoint.note),
    run: parsing(
      (input) => openCheckpoint(fromUtf8Lossy(input), checkpoint.vkey, checkpoint.origin),
      (opened) => must(formatCheckpoint(opened) === checkpoint.text, 'an unsigned checkpoint'),
    ),
  },
  {
    name: 'overlay-rule',
    seeds: texts(
      '@sentence("a") forbid (principal, action, resource) when { context.lane == "agent" };',
      `forbid (principal, action, resource) when { ${'!('.repeat(40)}true${')'.repeat(40)} };`,
    ),
    run: (input) => {
      const policies = { 'overlay.a': fromUtf8Lossy(input) };
      const isSound = overlayFormProblems(policies).length === 0;
      if (isSound) preparse('fuzz', { schema: '', policies, sentences: {} });
      // A text that crashes Cedar would make Cedar fail on every later text.
      must(overlayFormProblems({ a: FORBID }).length === 0, 'Cedar is broken');
      return isSound ? 'accepted' : 'rejected';
    },
  },
  {
    name: 'api-key',
    seeds: texts(key, key.replace('abc', 'abd')),
    run: (input) => {
      const text = fromUtf8Lossy(input);
      const parsed = parseApiKey(text);
      if (parsed === null) return API_KEY_PATTERN.test(text) ? 'wrong checksum' : 'no key';
      must(formatApiKey(parsed) === text, 'a non-canonical encoding of a key');
      return 'accepted';
    },
  },
  {
    name: 'facade-url',
    seeds: texts(
      ...PATHS.map((path, i) => `/api/public/verify/${path}/${ids[i % ids.length] ?? ''}`),
      ...ids.map((one) => `/api/public/verify?identifier=${one}`),
      '/api/public/trust/x/timeline',
      'http://host/api/public/verify/proof/%E2%9C%88',
      `/api/public/verify/share/share_${'A'.repeat(43)}?a=b`,
    ),
    run: parsing(
      (input) => {
        const url = fromUtf8Lossy(input);
        mayHoldToken(url);
        return lookupAt(originForm(url));
      },
      (lookup) => {
        if (lookup === null) return;
        const matchedOn = lookupNameOf(lookup.requested);
        // The response must be JSON for any request.
        const head = responseHead('proof', lookup.requested, matchedOn ?? 'identifier');
        utf8(head);
      },
    ),
  },
  {
    name: 'facade-query',
    seeds: texts('identifier=x', 'q=%C3%A9&x=1', 'id=a+b', 'identifier=a&id=b', ''),
    run: parsing(
      (input) => requestedByQuery(fromUtf8Lossy(input)),
      (requested) => must(requested.length > 0, 'an empty lookup'),
    ),
  },
  {
    name: 'config',
    seeds: texts(
      'DATABASE_URL=postgres://u:p@h/d\nENGINE_PORT=0',
      'SNAPSHOT_URL=https://h\nSNAPSHOT_DIR=a',
      'DATABASE_URL=postgres://h/d\nLOG_KEY_FILE=a\nLOG_ORIGIN=a/log\nSNAPSHOT_TTL=2s',
    ),
    run: (input) => {
      const lines = fromUtf8Lossy(input)
        .split('\n')
        .filter((line) => !line.includes('_FILE='));
      const env = Object.fromEntries(
        lines
          .filter((line) => line.includes('='))
          .map((line) => {
            const at = line.indexOf('=');
            return [line.slice(0, at), line.slice(at + 1)];
          }),
      );
      const outcomes = [engineConfig, facadeConfig, publisherConfig].map((read) =>
        parsing(
          () => read(env),
          (config) => must(isDeepStrictEqual(read(env), config), 'a second read differs'),
        )(input),
      );
      return outcomes.includes('accepted') ? 'accepted' : (outcomes[0] ?? '');
    },
  },
];
