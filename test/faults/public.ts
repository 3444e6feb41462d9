import type { Told } from './acts/act.js';

interface Answer {
  lookup?: { matched_on: string | null };
  verification?: { verification_status: string; can_assert_validity: boolean };
}

const ASSERTING = ['VALID', 'PASS', 'VERIFIED', 'TRUST_ESTABLISHED'];

/** What the public is told: a status, `null` of what is not there, or what is wrong with the answer. */
async function askPublic(publicUrl: string, path: string): Promise<string> {
  const response = await fetch(`${publicUrl}/api/public/verify/${path}`);
  const { lookup, verification } = (await response.json()) as Answer;
  if (response.status === 404 || lookup?.matched_on === null) return 'null';
  const status = verification?.verification_status;
  if (response.status !== 200 || status === undefined) return String(response.status);
  if (verification?.can_assert_validity === ASSERTING.includes(status)) return status;
  return `${status}, which ${verification?.can_assert_validity === true ? 'asserts' : 'does not'}`;
}

/** What the public is told beside what it must be told. */
export async function readTold(
  publicUrl: string,
  wanted: readonly Told[],
): Promise<{ path: string; status: string; said: string }[]> {
  return Promise.all(
    wanted.map(async ({ path, status }) => ({
      path,
      status: String(status),
      said: await askPublic(publicUrl, path).catch(String),
    })),
  );
}
