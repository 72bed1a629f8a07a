"""Line logs of LLaMA-Factory and ms-swift."""
