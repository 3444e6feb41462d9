import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { fromUtf8, toHex, utf8 } from '#protocol/bytes';
import { encodeShare, openShare, shareIndexId, tokenHash } from '#protocol/snapshot/share';
import lifecycle from '../../protocol/vectors/lifecycle.json' with { type: 'json' };
import { sha256 } from '../fixtures/leaves.js';
import { admitted } from '../fixtures/worked-log.js';

const chapter = readFileSync(new URL('../../spec/snapshot.md', import.meta.url), 'utf8')
  .split('\n### Share parts\n')[1]!
  .split('\n### ')[0]!;

describe('worked example of a share token', () => {
  const { token, token_hash } = lifecycle.share_token;
  const hash = tokenHash(sha256, token);
  const share = { schema_version: 'svc.public_verification.share/1.0', token_hash } as const;

  it('equals the record in the published snapshot', () => {
    expect(toHex(hash)).toBe(token_hash);
    expect(chapter).toContain(`\`${toHex(shareIndexId(hash))}\``);
    const shown = { ...share, artifact_kind: 'trust', proof_id: admitted.proofId } as const;
    const ended = { ...share, artifact_kind: null };
    const examples = [...chapter.matchAll(/```\n(.*?)\n```/gs)].map(([, text]) => text);
    expect(examples).toEqual([shown, ended].map((one) => fromUtf8(encodeShare(one))));
    for (const one of [shown, ended]) expect(openShare(encodeShare(one), hash)).toEqual(one);
  });

  it('is rejected when the record is invalid or belongs to another token', () => {
    const shown = { ...share, artifact_kind: 'trust', proof_id: admitted.proofId } as const;
    const refusal = { code: 'malformed_snapshot' };
    // An index row is found by the first half of the hash: a token whose hash shares that half with
    // another token's must not resolve to the other's record.
    const halfTheSame = hash.slice();
    halfTheSame[31]! ^= 1;
    expect(shareIndexId(halfTheSame)).toEqual(shareIndexId(hash));
    expect(() => openShare(encodeShare(shown), halfTheSame)).toThrow(
      expect.objectContaining(refusal),
    );
    for (const wrong of [
      { ...shown, artifact_kind: 'package' },
      { ...shown, artifact_kind: null },
      { ...shown, expires_at: '2026-11-20T17:29:00.123Z' },
      { ...shown, proof_id: undefined },
      { ...shown, schema_version: 'svc.public_verification.share/1.1' },
    ]) {
      expect(() => openShare(utf8(JSON.stringify(wrong)), hash)).toThrow(
        expect.objectContaining(refusal),
      );
    }
    expect(() => openShare(encodeShare(shown).slice(1), hash)).toThrow(
      expect.objectContaining(refusal),
    );
  });
});
