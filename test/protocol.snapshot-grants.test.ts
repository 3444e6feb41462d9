import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { fromUtf8, toHex } from '#protocol/bytes';
import { encodeShare, openShare, shareIndexId, tokenHash } from '#protocol/snapshot/share';
import lifecycle from '../protocol/vectors/lifecycle.json' with { type: 'json' };
import { sha256 } from './helpers/leaves.js';
import { admitted } from './helpers/worked-log.js';

const chapter = readFileSync(new URL('../docs/protocol.md', import.meta.url), 'utf8')
  .split('\n### Share parts\n')[1]!
  .split('\n### ')[0]!;

describe('the worked share token', () => {
  const { token, token_hash } = lifecycle.share_token;
  const hash = tokenHash(sha256, token);
  const share = { schema_version: 'svc.public_verification.share/1.0', token_hash } as const;

  it('is in the chapter on snapshots as it would be in one', () => {
    expect(toHex(hash)).toBe(token_hash);
    expect(chapter).toContain(`\`${toHex(shareIndexId(hash))}\``);
    const shown = { ...share, artifact_kind: 'trust', proof_id: admitted.proofId } as const;
    const ended = { ...share, artifact_kind: null };
    const examples = [...chapter.matchAll(/```\n(.*?)\n```/gs)].map(([, text]) => text);
    expect(examples).toEqual([shown, ended].map((one) => fromUtf8(encodeShare(one))));
    for (const one of [shown, ended]) expect(openShare(encodeShare(one), hash)).toEqual(one);
  });
});
