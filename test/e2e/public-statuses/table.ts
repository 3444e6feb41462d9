/**
 * Expected public responses as data: the public lookups (spec/answers.md) and the states of artifacts.
 * The tests combine every lookup with every state.
 */

export const KINDS = ['proof', 'passport', 'certificate', 'trust'] as const;
export type Kind = (typeof KINDS)[number];

/** The text of an empty cell. */
export const NONE = '-';

/**
 * Every lookup. `matches`: the ids that the lookup finds. `shows`: the artifact that its answer is about;
 * `asked` means the artifact that the id names (see SHOWN_BY). `else`: the answer for an unresolved id:
 * the not-found record, or BACKEND_LOOKUP_REQUIRED with this kind. A POST sends the id in `member`.
 */
export const LOOKUPS = table<
  'method' | 'path' | 'member' | 'matches' | 'shows' | 'within' | 'answer' | 'else'
>(`
  method | path                                                 | member         | matches                                               | shows       | within  | answer  | else
  GET    | /api/public/verify/proof/{proof_id}                  | -              | proof_id                                              | proof       | history | facade  | 404
  GET    | /api/public/verify/certificate/{certificate_id}      | -              | certificate_id cert_id certificate_ref trust_asset_id | certificate | history | facade  | certificate
  GET    | /api/public/verify/passport/{passport_id}            | -              | passport_id passport_ref execution_passport_id        | passport    | history | facade  | passport
  GET    | /api/public/verify/trust/{trust_id}                  | -              | trust_id trust_ref trust_asset_id                     | trust       | history | facade  | trust
  GET    | /api/public/verify                                   | identifier     | all nine                                              | asked       | window  | facade  | proof
  POST   | /api/public/verify                                   | proof_id       | proof_id                                              | proof       | window  | facade  | proof
  POST   | /api/public/verify                                   | certificate_id | certificate_id cert_id                                | certificate | window  | facade  | proof
  POST   | /api/public/verify                                   | passport_id    | passport_id                                           | passport    | window  | facade  | proof
  POST   | /api/public/verify                                   | trust_id       | trust_id                                              | trust       | window  | facade  | proof
  POST   | /api/public/verify                                   | trust_asset_id | trust_asset_id                                        | trust       | window  | facade  | proof
  POST   | /api/public/verify                                   | share_token    | share_token                                           | asked       | window  | facade  | proof
  POST   | /api/public/verify                                   | package_id     | package_id                                            | trust       | window  | facade  | proof
  POST   | /api/public/verify                                   | identifier     | all nine                                              | asked       | window  | facade  | proof
  GET    | /api/public/verify/trust-asset/{trust_asset_id}      | -              | trust_asset_id                                        | trust       | history | facade  | trust
  GET    | /api/public/verify/share/{share_token}               | -              | share_token                                           | asked       | history | facade  | proof
  GET    | /api/public/verify/package/{package_id}              | -              | package_id                                            | trust       | history | facade  | trust
  GET    | /api/public/proof/{proof_id}/history                 | -              | proof_id                                              | proof       | history | history | proof
  GET    | /api/public/certificate/{certificate_id}             | -              | certificate_id cert_id certificate_ref trust_asset_id | certificate | history | facade  | certificate
  GET    | /api/public/certificate/{certificate_id}/history     | -              | certificate_id cert_id certificate_ref trust_asset_id | certificate | history | history | certificate
  GET    | /api/public/certificate/{certificate_id}/trust-chain | -              | certificate_id cert_id certificate_ref trust_asset_id | certificate | history | chain   | certificate
  GET    | /api/public/passport/{passport_id}                   | -              | passport_id passport_ref execution_passport_id        | passport    | history | facade  | passport
  GET    | /api/public/passport/{passport_id}/history           | -              | passport_id passport_ref execution_passport_id        | passport    | history | history | passport
  GET    | /api/public/passport/{passport_id}/trust-chain       | -              | passport_id passport_ref execution_passport_id        | passport    | history | chain   | passport
  GET    | /api/public/trust/{trust_id}                         | -              | trust_id trust_ref trust_asset_id                     | trust       | history | facade  | trust
  GET    | /api/public/trust/{trust_id}/timeline                | -              | trust_id trust_ref trust_asset_id                     | trust       | history | history | trust
  GET    | /api/public/trust/{trust_id}/chain                   | -              | trust_id trust_ref trust_asset_id                     | trust       | history | chain   | trust
  GET    | /api/public/trust/{trust_id}/package                 | -              | trust_id trust_ref trust_asset_id                     | trust       | history | package | trust
`);

/** Every status of spec/answers.md. */
export const STATUSES = [
  'BACKEND_LOOKUP_REQUIRED',
  'EXPIRED',
  'NOT_FOUND',
  'PASS',
  'REVOKED',
  'TRUST_ESTABLISHED',
  'VALID',
  'VERIFIED',
];

/**
 * The nine ids that generic lookups match, and the artifact that each names; a token names the shared
 * artifact.
 */
export const SHOWN_BY: Record<string, Kind | 'shared'> = {
  proof_id: 'proof',
  registry_entry_id: 'proof',
  execution_id: 'proof',
  certificate_id: 'certificate',
  passport_id: 'passport',
  trust_id: 'trust',
  trust_asset_id: 'trust',
  share_token: 'shared',
  package_id: 'trust',
};

/** Aliases; `matched_on` has the canonical name. */
export const SAME_VALUE: Record<string, string> = { cert_id: 'certificate_id' };

/**
 * Proofs in log order. `by`: how the proof is admitted. `ends`: its artifact with a short validity.
 * `revoked`, `when`: its revoked artifact, and whether the revocation precedes the publication (`at once`),
 * follows the publication (`public`) or follows the expiry (`over`). The last columns: the expected
 * statuses of the four artifacts, and whether there is a trust chain. The recent lookups begin with the first row that
 * is `inside`.
 */
export const STATES = table<
  | 'state'
  | 'by'
  | 'ends'
  | 'revoked'
  | 'when'
  | 'window'
  | 'proof'
  | 'passport'
  | 'certificate'
  | 'trust'
  | 'chain'
>(`
  state                        | by        | ends        | revoked     | when    | window  | proof   | passport | certificate | trust             | chain
  old                          | execute   | -           | -           | -       | outside | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  old, revoked                 | execute   | -           | proof       | public  | outside | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  old, over                    | execute   | proof       | -           | -       | outside | EXPIRED | EXPIRED  | EXPIRED     | EXPIRED           | yes
  old, denied                  | denial    | -           | -           | -       | outside | VALID   | -        | -           | -                 | no
  last outside                 | execute   | -           | -           | -       | outside | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  first inside                 | execute   | -           | -           | -       | inside  | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  valid                        | execute   | -           | -           | -       | inside  | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  valid, live                  | live      | -           | -           | -       | inside  | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  valid, of an agent           | admission | -           | -           | -       | inside  | VALID   | PASS     | VERIFIED    | TRUST_ESTABLISHED | yes
  valid, an outcome            | outcome   | -           | -           | -       | inside  | VALID   | -        | -           | -                 | no
  denied                       | denial    | -           | -           | -       | inside  | VALID   | -        | -           | -                 | no
  denied, of an agent          | agent's   | -           | -           | -       | inside  | VALID   | -        | -           | -                 | no
  denied, revoked              | denial    | -           | proof       | public  | inside  | REVOKED | -        | -           | -                 | no
  proof revoked                | execute   | -           | proof       | public  | inside  | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  proof revoked, unseen        | execute   | -           | proof       | at once | inside  | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  proof revoked, live          | live      | -           | proof       | public  | inside  | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  passport revoked             | execute   | -           | passport    | public  | inside  | VALID   | REVOKED  | REVOKED     | REVOKED           | yes
  certificate revoked          | execute   | -           | certificate | public  | inside  | VALID   | PASS     | REVOKED     | REVOKED           | yes
  trust revoked                | execute   | -           | trust       | public  | inside  | VALID   | PASS     | VERIFIED    | REVOKED           | yes
  proof over                   | execute   | proof       | -           | -       | inside  | EXPIRED | EXPIRED  | EXPIRED     | EXPIRED           | yes
  passport over                | execute   | passport    | -           | -       | inside  | VALID   | EXPIRED  | EXPIRED     | EXPIRED           | yes
  certificate over             | execute   | certificate | -           | -       | inside  | VALID   | PASS     | EXPIRED     | EXPIRED           | yes
  trust over                   | execute   | trust       | -           | -       | inside  | VALID   | PASS     | VERIFIED    | EXPIRED           | yes
  denied, over                 | denial    | proof       | -           | -       | inside  | EXPIRED | -        | -           | -                 | no
  proof revoked, then over     | execute   | proof       | proof       | at once | inside  | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  proof over, then revoked     | execute   | proof       | proof       | over    | inside  | REVOKED | REVOKED  | REVOKED     | REVOKED           | yes
  proof over, passport revoked | execute   | proof       | passport    | over    | inside  | EXPIRED | REVOKED  | REVOKED     | REVOKED           | yes
  passport over, trust revoked | execute   | passport    | trust       | over    | inside  | VALID   | EXPIRED  | EXPIRED     | REVOKED           | yes
  trust over, passport revoked | execute   | trust       | passport    | over    | inside  | VALID   | REVOKED  | REVOKED     | REVOKED           | yes
  unknown                      | never     | -           | -           | -       | -       | -       | -        | -           | -                 | no
`);

/** Packages of the proofs in STATES, and the expected responses. */
export const PACKAGES = table<'package' | 'members' | 'window' | 'trust' | 'chain'>(`
  package               | members                                  | window  | trust             | chain
  good                  | valid; valid, of an agent                | inside  | TRUST_ESTABLISHED | yes
  good, of one          | first inside                             | inside  | TRUST_ESTABLISHED | yes
  good, live            | valid, live                              | inside  | TRUST_ESTABLISHED | yes
  old                   | old; last outside                        | outside | TRUST_ESTABLISHED | yes
  old, revoked          | old; old, revoked                        | outside | REVOKED           | yes
  old and new           | last outside; first inside               | inside  | TRUST_ESTABLISHED | yes
  one proof revoked     | valid; proof revoked; valid, of an agent | inside  | REVOKED           | yes
  one trust revoked     | trust revoked; valid                     | inside  | REVOKED           | yes
  one proof over        | valid; proof over                        | inside  | EXPIRED           | yes
  one trust over        | trust over; valid                        | inside  | EXPIRED           | yes
  one revoked, one over | proof over; certificate revoked; valid   | inside  | REVOKED           | yes
  one over and revoked  | valid; proof over, then revoked          | inside  | REVOKED           | yes
  unknown               | -                                        | -       | -                 | no
`);

/** Share tokens: the shared artifact or package, how the token ends, and the expected response. */
export const TOKENS = table<'kind' | 'of' | 'end' | 'window' | 'status' | 'chain'>(`
  kind        | of                       | end     | window  | status            | chain
  proof       | valid                    | -       | inside  | VALID             | yes
  passport    | valid                    | -       | inside  | PASS              | yes
  certificate | valid                    | -       | inside  | VERIFIED          | yes
  trust       | valid                    | -       | inside  | TRUST_ESTABLISHED | yes
  package     | good                     | -       | inside  | TRUST_ESTABLISHED | yes
  proof       | valid, live              | -       | inside  | VALID             | yes
  proof       | denied                   | -       | inside  | VALID             | no
  proof       | proof revoked            | -       | inside  | REVOKED           | yes
  proof       | passport revoked         | -       | inside  | VALID             | yes
  passport    | passport revoked         | -       | inside  | REVOKED           | yes
  trust       | trust revoked            | -       | inside  | REVOKED           | yes
  certificate | certificate over         | -       | inside  | EXPIRED           | yes
  passport    | certificate over         | -       | inside  | PASS              | yes
  trust       | proof over, then revoked | -       | inside  | REVOKED           | yes
  package     | one proof revoked        | -       | inside  | REVOKED           | yes
  package     | one proof over           | -       | inside  | EXPIRED           | yes
  proof       | old                      | -       | outside | VALID             | yes
  certificate | old, over                | -       | outside | EXPIRED           | yes
  package     | old                      | -       | outside | TRUST_ESTABLISHED | yes
  package     | old and new              | -       | inside  | TRUST_ESTABLISHED | yes
  proof       | valid                    | revoked | inside  | -                 | no
  trust       | valid                    | revoked | inside  | -                 | no
  package     | good                     | revoked | inside  | -                 | no
  proof       | old                      | revoked | outside | -                 | no
  proof       | valid                    | over    | inside  | -                 | no
  certificate | proof revoked            | over    | inside  | -                 | no
  package     | good                     | over    | inside  | -                 | no
  proof       | valid                    | both    | inside  | -                 | no
  unknown     | -                        | -       | -       | -                 | no
`);

/** Malformed identifiers. `*` is replaced by the id of a VALID proof. */
export const MALFORMED = [
  'nonsense',
  '0',
  ' *',
  '*0',
  'CERT_*',
  'cert-*',
  'cert_pass_*',
  'batch_*',
  'pkg_*0',
  'share_*',
  'asset_',
  '../proof/*',
  '%2e%2e%2f*',
  '"};alert(1)',
  '\u00e9\u{1f600}',
  'a'.repeat(1_000),
];

/** Parses a table into rows by column name. */
function table<Column extends string>(text: string): Record<Column, string>[] {
  const [head = [], ...lines] = text
    .trim()
    .split('\n')
    .map((line) => line.split('|').map((cell) => cell.trim()));
  return lines.map((cells) => {
    if (cells.length !== head.length)
      throw new Error(`a row does not match the table head: ${cells.join()}`);
    return Object.fromEntries(cells.map((cell, i) => [head[i], cell])) as Record<Column, string>;
  });
}
