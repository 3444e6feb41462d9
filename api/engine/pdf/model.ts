import type { ProofExport } from '#protocol/schemas/proof-export';
import { artifactRows, type ArtifactRow } from './artifact-rows.js';
import { chainSteps, type ChainStep } from './chain-steps.js';
import { decisionFields, partyFields } from './decision-fields.js';
import { exact, field, words, type Field, type Section } from './field.js';
import { headlineOf, type Headline } from './headline.js';
import { checkpointOf, hashFields, keyFields, logFields } from './log-fields.js';

/** Content of the PDF, before layout. */
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
  /** Explains missing steps of the chain. */
  chainEnd: string | null;
  log: Section;
  hashes: Section;
  keys: Section;
}

/** @param json bytes of the attached export */
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
      `The attached file ${proof_id}.json is the proof itself. Extract it, send it to ` +
      'POST /v1/proofs/verify and compare it with these pages. Where they differ, the pages are ' +
      'wrong.',
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
        'SHA-256 of canonical bytes (RFC 8785), in hexadecimal. The section Decision has the policy hashes.',
      fields: hashFields(document, json),
    },
    keys: { title: 'Signature and keys', fields: keyFields(document) },
  };
}

function chainEndOf({ decision, subject }: ProofExport['aep']): string | null {
  if (decision.effect === 'DENY') {
    return 'The chain of a denial ends here: a denied action has no passport, certificate or trust.';
  }
  return subject.kind === 'outcome'
    ? 'The chain of an outcome ends here: only the admission of an action has a passport, certificate and trust.'
    : null;
}

function verdictFields(document: ProofExport): Field[] {
  const { verdict } = document;
  const headline = headlineOf(document);
  return [
    field(headline.asserts ? 'Asserted' : 'Status', ...headline.asserted.map(words)),
    field('By', words('the verification system of the log'), exact(checkpointOf(document).origin)),
    field('As of', words(`the first ${verdict.log_size} entries of the log`)),
    field(
      'Verified at',
      verdict.verified_at === null ? words('not verified yet') : exact(verdict.verified_at),
    ),
    field('Not asserted', ...headline.notAsserted.map(words)),
  ];
}
