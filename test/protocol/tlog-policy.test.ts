import { describe, expect, it } from 'vitest';
import { cosign, findCosignature } from '#protocol/cosignature';
import { nobleSha256 } from '#protocol/hash';
import { COSIGNATURE_TYPE, formatVkey, keyId, parseVkey } from '#protocol/note';
import { checkQuorum, parsePolicy, requireQuorum } from '#protocol/tlog-policy';
import { nativeVerify } from '#runtime/crypto/node';
import { refusal } from '../fixtures/refusal.js';
import { checkpoint, checkpointText, logVkey, testKey } from '../fixtures/worked-log.js';

function testWitness(name: string, vector: number) {
  const { publicKey, sign } = testKey(vector);
  const keyHash = keyId(nobleSha256, name, publicKey, COSIGNATURE_TYPE);
  return {
    vkey: formatVkey(nobleSha256, name, publicKey, COSIGNATURE_TYPE),
    cosign: (time = 1_700_000_000) => cosign(checkpointText, { name, keyHash, sign }, time),
  };
}
const x1 = testWitness('x.example/1', 0);
const x2 = testWitness('x.example/2', 2);
const y1 = testWitness('y.example/1', 3);

const WITNESSES = `
# Two witnesses of one operator, one of another.
log ${logVkey} https://log.example/
witness X1 ${x1.vkey} https://x.example/1
witness X2 ${x2.vkey}
\twitness  Y1\t${y1.vkey}
`;
const GROUPS = `${WITNESSES}group X 2 X1 X2\ngroup Y any Y1\ngroup X-and-Y all X Y\n`;
const policy = parsePolicy(`${GROUPS}quorum X-and-Y\n`);

const isMet = (cosignatures: string[], wanted = policy): boolean =>
  checkQuorum(checkpoint + cosignatures.join(''), wanted, nativeVerify).isMet;

describe('cosignature', () => {
  it('verifies only with its own text, time, name and key', () => {
    const find = (note: string, vkey = x1.vkey) =>
      findCosignature(note, parseVkey(vkey, nobleSha256, COSIGNATURE_TYPE), nativeVerify);
    const line = x1.cosign(1_700_000_000);
    expect(find(checkpoint + line)).toEqual({ timestamp: 1_700_000_000, line });
    expect(find(checkpoint)).toBeNull();
    expect(find(checkpoint + line, x2.vkey)).toBeNull();
    expect(find(checkpoint + line.replace('x.example/1', 'x.example/2'))).toBeNull();
    expect(find(checkpoint.replace('\n5\n', '\n6\n') + line)).toBeNull();
    const time = line.indexOf(' ', 3) + 14;
    expect(find(checkpoint + line.slice(0, time) + 'B' + line.slice(time + 1))).toBeNull();
  });

  it('counts with the latest time if a witness cosigned several times', () => {
    const lines = [1_700_000_001, 1_700_000_003, 1_700_000_002].map(x1.cosign);
    const { cosigned } = checkQuorum(checkpoint + lines.join(''), policy, nativeVerify);
    expect(cosigned.map(({ timestamp }) => timestamp)).toEqual([1_700_000_003]);
  });
});

describe('policy', () => {
  it('requires the quorum of its groups, and ignores other signatures', () => {
    const wrong = y1.cosign().replace('y.example/1', 'x.example/1');
    const stranger = testWitness('z.example/1', 1).cosign();
    expect(isMet([x1.cosign(), x2.cosign(), y1.cosign()])).toBe(true);
    expect(isMet([stranger, y1.cosign(), x2.cosign(), wrong, x1.cosign()])).toBe(true);
    expect(isMet([x1.cosign(), x2.cosign(), stranger])).toBe(false);
    expect(isMet([x1.cosign(), x1.cosign(1_700_000_001), y1.cosign()])).toBe(false);
    expect(isMet([])).toBe(false);
    expect(isMet([], parsePolicy(`${WITNESSES}quorum none\n`))).toBe(true);
    expect(isMet([x2.cosign()], parsePolicy(`${WITNESSES}quorum X2\n`))).toBe(true);
    const lone = checkpoint + x1.cosign();
    expect(refusal(() => requireQuorum(lone, policy, nativeVerify)).code).toBe('quorum_not_met');
  });

  it('lists its logs, and its witnesses with their URLs', () => {
    expect(policy.logs.map(({ url, vkey }) => [vkey.name, url])).toEqual([
      ['log.example/svc', 'https://log.example/'],
    ]);
    expect(policy.witnesses.map(({ name, url }) => [name, url])).toEqual([
      ['X1', 'https://x.example/1'],
      ['X2', null],
      ['Y1', null],
    ]);
  });

  it.each([
    ['no quorum', GROUPS],
    ['two quorums', `${GROUPS}quorum X\nquorum Y\n`],
    ['no newline at the end', `${GROUPS}quorum X`],
    ['an unknown name', `${GROUPS}quorum Z\n`],
    ['a name that a later line defines', `group A any B\nwitness B ${x1.vkey}\nquorum A\n`],
    ['the keyword none as a member', `${WITNESSES}group A any X1 none\nquorum A\n`],
    ['the keyword none as a name', `witness none ${x1.vkey}\nquorum none\n`],
    ['a name twice', `${WITNESSES}group X1 any X2\nquorum X1\n`],
    ['a key twice', `${WITNESSES}witness X3 ${x1.vkey}\nquorum X1\n`],
    ['a log key twice', `${WITNESSES}log ${logVkey}\nquorum X1\n`],
    ['a member of two groups', `${GROUPS}group Z any X1\nquorum Z\n`],
    ['a member twice', `${WITNESSES}group A 2 X1 X1\nquorum A\n`],
    ['a group without members', `${WITNESSES}group A any\nquorum A\n`],
    ['a threshold of 0', `${WITNESSES}group A 0 X1\nquorum X2\n`],
    ['a threshold above the members', `${WITNESSES}group A 3 X1 X2\nquorum X2\n`],
    ['a threshold that is not a number', `${WITNESSES}group A constructor X1\nquorum X2\n`],
    ['a log key as a witness', `witness X ${logVkey}\nquorum X\n`],
    ['a witness key as a log', `log ${x1.vkey}\nquorum none\n`],
    ['a wrong key id', `witness X ${x1.vkey.replace(/\+[0-9a-f]{8}\+/, '+00000000+')}\nquorum X\n`],
    ['an unknown keyword', `${WITNESSES}require X1\nquorum none\n`],
    ['one item too many on a line', `${WITNESSES}quorum X1 X2\n`],
    ['a log with an extra item', `log ${logVkey} https://a https://b\nquorum none\n`],
    ['a witness with an extra item', `witness X ${x1.vkey} https://a https://b\nquorum X\n`],
    ['a carriage return', `${WITNESSES}quorum X1\r\n`],
  ])('with %s is malformed', (_, text) => {
    expect(refusal(() => parsePolicy(text)).code).toBe('malformed_policy');
  });

  it('is never quoted in an error, because the file may be a private key', () => {
    expect(refusal(() => parsePolicy('4bX0secret=\n')).message).not.toContain('secret');
  });
});
