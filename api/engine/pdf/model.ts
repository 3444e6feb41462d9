import type { ProofExport } from '#protocol/schemas/proof-export';
import { artifactRows, type ArtifactRow } from './artifact-rows.js';
import { chainSteps, type ChainStep } from './chain-steps.js';
import { decisionFields, partyFields } from './decision-fields.js';
import { exact, field, words, type Field, type Section } from './field.js';
import { headlineOf, type Headline } from './headline.js';
import { checkpointOf, hashFields, keyFields, logFields } from './log-fields.js';

/** Everything that is printed, before anybody knows where on which page. */
export interface PdfModel {
  proofId: string;
  lookupUrl: string;
  howToCheck: string;
  headline: Headline;
  verdict: Field[];
  parties: Section;
  decision: Section;
  artifacts: ArtifactRow[];
  chain: ChainStep[];
  /** What the chain does not have, and why. */
  chainEnd: string | null;
  log: Section;
  hashes: Section;
  keys: Section;
}

/** @param json the export document's bytes, which go along with the paper */
export function buildPdfModel(
  document: ProofExport,
  json: Uint8Array,
  lookupUrl: string,
): PdfModel {
  const { proof_id } = document;
  return {
    proofId: proof_id,
    lookupUrl,
    howToCheck:
      `The file ${proof_id}.json inside this PDF is the proof itself: take it out, send it to ` +
      'POST /v1/proofs/verify, and hold what is printed here against it; where they differ, ' +
      'this paper is wrong.',
    headline: headlineOf(document),
    verdict: verdictFields(document),
    parties: { title: 'Parties', fields: partyFields(document) },
    decision: { title: 'Decision', fields: decisionFields(document) },
    artifacts: artifactRows(document),
    chain: chainSteps(document),
    chainEnd: chainEndOf(document.aep),
    log: { title: 'Place in the log', fields: logFields(document) },
    hashes: {
      title: 'Hashes',
      intro:
        'SHA-256 in hexadecimal, of canonical bytes (RFC 8785). Those of the policy are with the decision.',
      fields: hashFields(document, json),
    },
    keys: { title: 'Signature and keys', fields: keyFields(document) },
  };
}

function chainEndOf({ decision, subject }: ProofExport['aep']): string | null {
  if (decision.effect === 'DENY') {
    return 'The chain of a denial ends here: what is denied has no passport, certificate or trust.';
  }
  return subject.kind === 'outcome'
    ? 'The chain of an outcome ends here: only the admission of an action has a passport, certificate and trust.'
    : null;
}

function verdictFields(document: ProofExport): Field[] {
  const { verdict } = document;
  const headline = headlineOf(document);
  return [
    field(headline.asserts ? 'Asserted' : 'Standing', ...headline.says.map(words)),
    field('By', words('the verification system of the log'), exact(checkpointOf(document).origin)),
    field('As of', words(`the first ${verdict.log_size} entries of the log`)),
    field(
      'Verified at',
      verdict.verified_at === null ? words('not verified yet') : exact(verdict.verified_at),
    ),
    field('Does not say', ...headline.doesNotSay.map(words)),
  ];
}
